"""Allocated registers hold what the virtual ones would."""

from hypothesis import given, settings
from hypothesis import strategies as st
from shapevm.compiler.emit.registers import Code
from shapevm.vm.builder import Label, ProgramBuilder
from shapevm.vm.program import Program
from shapevm.vm.reference import Reference


def program(code: Code, n_results: int) -> Program:
    builder = ProgramBuilder()
    code.write(builder.function("main", code.n_params, n_results))
    return builder.finish()


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["add", "sub", "move"]), st.integers(0, 99), st.integers(0, 99)),
        max_size=30,
    )
)
def test_straight_code(steps):
    code = Code(0)
    registers = [code.result("int", value=3), code.result("int", value=5)]
    values = [3, 5]
    for op, i, j in steps:
        a, b = i % len(values), j % len(values)
        if op == "move":
            registers.append(code.result("move", a=registers[a]))
            values.append(values[a])
        else:
            registers.append(code.result(op, a=registers[a], b=registers[b]))
            values.append(values[a] + values[b] if op == "add" else values[a] - values[b])
    code.op("return", values=tuple(registers))
    assert Reference(program(code, len(values)), None).run(0, []) == values


def test_a_dead_result_does_not_share_its_neighbours_register():
    builder = ProgramBuilder()
    main = builder.function("main", 0, 1)
    pair = builder.function("pair", 0, 2)
    code = Code(0)
    dead, wanted = code.register(), code.register()
    code.op("call", function=1, results=(dead, wanted), args=())
    code.op("return", values=(wanted,))
    code.write(main)
    inner = Code(0)
    inner.op("return", values=(inner.result("int", value=1), inner.result("int", value=2)))
    inner.write(pair)
    assert Reference(builder.finish(), None).run(0, []) == [2]


def test_values_from_before_a_loop_stay_until_its_end():
    code = Code(0)
    start, end = Label(), Label()
    step, limit = code.result("int", value=2), code.result("int", value=10)
    total = code.result("int", value=0)
    code.place(start)
    condition = code.result("lt", a=total, b=limit)
    code.op("branch", cond=condition, otherwise=end)
    doubled = code.result("mul", a=step, b=step)  # the last mention of step is here, at every turn
    code.op("add", d=total, a=total, b=doubled)
    unrelated = code.result("int", value=99)
    code.op("move", d=unrelated, a=unrelated)
    code.op("jump", target=start)
    code.place(end)
    code.op("return", values=(total,))
    assert Reference(program(code, 1), None).run(0, []) == [12]


def test_parameters_registers_are_used_again():
    code = Code(2)
    total = code.result("add", a=0, b=1)
    for _ in range(10):
        total = code.result("add", a=total, b=total)
    code.op("return", values=(total,))
    made = program(code, 1)
    assert made.functions[0].n_registers == 2 and Reference(made, None).run(0, [1, 2]) == [3 * 1024]
