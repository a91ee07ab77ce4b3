from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import replace

import pytest
from shapevm.vm import artifact
from shapevm.vm.assembler import assemble
from shapevm.vm.errors import Error, VerifyError
from shapevm.vm.isa import OPCODES
from shapevm.vm.load_options import LoadOptions
from shapevm.vm.machine import Machine
from shapevm.vm.program import Program
from shapevm.vm.reference import Reference
from shapevm.vm.verify import static_flow, verify

from .programs import sample, with_code

HEAD = 'kernel k0 "relu" (1 dims, f32[n0], out f32[n0]) = "{}"\nconstant c0 int = 1\n'


def main(code: str, results: int = 0, registers: int = 4) -> Program:
    return assemble(
        f'{HEAD}function "main" (0 params, {results} results, {registers} registers)\n{code}', verified=False
    )


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("  move r4 r0\n  return ()", "word 0: move: register 4 of 4"),
        ("  free (r0, r9)\n  return ()", "register 9 of 4"),
        ('  call "main" (r1, r1) ()\n  return ()', "a register is written twice"),
        ("  const r0 c1\n  return ()", "constant 1 of 1"),
        ("  kernel k1 (r0) (r0, r0)\n  return ()", "kernel 1 of 1"),
        ("  return (r0)", "1 values; the function has 0 results"),
        ('  call "main" (r1) ()\n  return ()', "0 args, 1 results; 'main' has 0 and 0"),
        ("  kernel k0 () (r0, r0)\n  return ()", "0 dims, 2 buffers; 'relu' has 1 and 2"),
        (f"  alloc r0 f32 ({', '.join(['r0'] * 17)})\n  return ()", "17 sizes; at most 16"),
        ("  dim r0 r0 16\n  return ()", "axis 16; it must be 0 to 15"),
        ("  dim r0 r0 -1\n  return ()", "axis -1; it must be 0 to 15"),
        ("  dict r0 (r1)\n  return ()", "an odd number of items"),
        ("  none r0", "control runs beyond the function's end"),
    ],
)
def test_rules(code: str, message: str) -> None:
    with pytest.raises(VerifyError, match="function 'main', word") as caught:
        verify(main(code))
    assert message in str(caught.value)
    assert caught.value.function == 0 and caught.value.pc >= 0


def test_words() -> None:
    p = main("  return ()")
    jump, ret = OPCODES["jump"], OPCODES["return"]
    for code, message in (
        ((len(OPCODES),), f"opcode {len(OPCODES)} is unknown"),
        ((ret, 1), "ends beyond"),
        ((ret, 0xFFFFFFFF, 0), "ends beyond"),
        ((jump, 1, ret, 0), "label 1 is not the start"),
        ((jump, 4, ret, 0), "label 4 is not the start"),
        ((OPCODES["alloc"], 0, 10, 0, ret, 0), "dtype 10 of 10"),
        ((OPCODES["fail"], 5), "string 5 of 1"),
    ):
        with pytest.raises(VerifyError) as caught:
            verify(with_code(p, code))
        assert message in str(caught.value)
    off = replace(p.functions[0], lines=((1, "m.py:1"),))
    with pytest.raises(VerifyError, match="a source line is at 1, not"):
        verify(replace(p, functions=(off,)))


def test_static_flow_follows_calls() -> None:
    p = assemble(
        'function "main" (0 params, 0 results)\n  call "a" () ()\n  return ()\n'
        'function "a" (0 params, 0 results)\n  call "b" () ()\n  call "a" () ()\n  return ()\n'
        'function "b" (0 params, 0 results)\n  item r0 r0 ()\n  return ()\n'
        'function "c" (0 params, 0 results)\n  return ()'
    )
    assert static_flow(p) == (False, False, False, True)
    assert static_flow(sample()) == (True, True)


@pytest.mark.parametrize("seed", range(20))
def test_the_runtime_and_its_definition_follow_calls_alike(seed: int) -> None:
    rng = random.Random(seed)
    text = ""
    for i in range(7):
        calls = "".join(f'  call "f{rng.randrange(7)}" () ()\n' for _ in range(rng.randrange(3)))
        data = "  item r0 r0 ()\n" if rng.random() < 0.15 else ""
        text += f'function "{f"f{i}" if i else "main"}" (0 params, 0 results)\n{calls}{data}  return ()\n'
    p = assemble(text.replace('"f0"', '"main"'))
    with Machine.from_bytes(artifact.to_bytes(p), LoadOptions(strategy="generic")) as machine:
        assert tuple(f.is_static_flow for f in machine.functions) == static_flow(p)


def test_verified_mutants_run_safely() -> None:
    """A program that the verifier accepts ends in results or in an error of the table, whatever its words
    are.
    """
    p, rng, accepted = sample(objects=False), random.Random(2), 0
    for _ in range(4000):
        code = list(p.functions[0].code)
        for _ in range(rng.choice((1, 2, 3))):
            code[rng.randrange(len(code))] = rng.choice(
                (rng.randrange(12), rng.randrange(48), rng.getrandbits(32))
            )
        mutant = with_code(p, tuple(code))
        try:
            reference = Limited(mutant, lambda *_: None)
        except VerifyError:
            continue
        accepted += 1
        with suppress(Error, Stopped):
            reference.run(0, [None, 1, 2.0, 3, 4])
    assert accepted > 100


class Stopped(Exception):
    pass


class Limited(Reference):
    """Ends programs that run too long."""

    steps = 300

    def _step(self, *args: object) -> None:
        self.steps -= 1
        if self.steps < 0:
            raise Stopped
        super()._step(*args)  # type: ignore[arg-type]
