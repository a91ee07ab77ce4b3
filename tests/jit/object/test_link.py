"""The linker against pyelftools on real objects, for every target; and what it refuses."""

import io
import struct

import llvmlite.binding as llvm
import pytest
from elftools.elf.elffile import ELFFile
from shapevm.jit import execute
from shapevm.jit.llvm.abi import PARAMS, CodeObject
from shapevm.jit.llvm.function import Function, Value
from shapevm.jit.llvm.target import TARGETS, host_target, runs_here, target_machine
from shapevm.jit.object import link
from shapevm.vm.program import MachineCode, Work

TABLE = (
    "@table = private unnamed_addr constant [64 x i32] ["
    + ", ".join(f"i32 {i * i}" for i in range(64))
    + '], section ".rodata.table", align 64\n'
)


def table_kernel() -> str:
    """buffers[0][t] = table[t] + 3 for the tiles t: an i32 constant table reached by relocation."""
    f = Function("kernel", PARAMS)
    out = f.load("ptr", f.params[0])
    with f.loop(f.params[3], f.params[4]) as loop:
        x = f.load("i32", f.op("ptr", f"getelementptr [64 x i32], ptr @table, i64 0, i64 {loop.index.name}"))
        f.store(f.op("i32", f"add i32 {x.name}, 3"), f.at(out, "i32", loop.index))
    return f.text()


def vector_kernel() -> str:
    """Vector constants of several kinds, which land in .rodata.cst*."""
    f = Function("kernel", PARAMS)
    out = f.load("ptr", f.params[0])
    x = f.load("<16 x float>", out)
    lanes = ", ".join(f"float {i}.5" for i in range(16))
    x = f.op(x.type, f"fmul {x.type} {x.name}, <{lanes}>")
    f.store(f.op(x.type, f"fadd {x.type} {x.name}, splat (float 0x3FF8000000000000)"), out)
    return f.text()


def compile_object(text: str, target: str) -> bytes:
    machine = target_machine(target)
    row = TARGETS[target]
    text = f'target triple = "{row.triple}"\n{TABLE}{text}attributes #0 = {{ {row.attributes} }}\n'
    with llvm.create_context() as context, llvm.parse_assembly(text, context) as module:
        return machine.emit_object(module)


def code_object(blob: link.Blob) -> CodeObject:
    return CodeObject("", host_target(), 0, (), Work(), (), MachineCode(blob.code, blob.entry))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("text", [table_kernel(), vector_kernel()], ids=["table", "vector"])
def test_reads_what_pyelftools_reads(target, text):
    elf = compile_object(text, target)
    _, sections = link.read_sections(elf)
    oracle = ELFFile(io.BytesIO(elf))
    assert [s.name for s in sections] == [s.name for s in oracle.iter_sections()]
    for ours, theirs in zip(sections, oracle.iter_sections(), strict=True):
        assert bytes(ours.body) == theirs.data() and ours.align == theirs["sh_addralign"]
    names = [(s.name, s["st_value"]) for s in oracle.get_section_by_name(".symtab").iter_symbols() if s.name]
    assert set(names) <= {(s.name, s.value) for s in link.read_symbols(sections)}


@pytest.mark.parametrize("target", TARGETS)
def test_every_relocation_points_into_the_blob(target):
    elf = compile_object(table_kernel(), target)
    blob = link.Object(elf).link("kernel")
    assert blob.entry % 16 == 0 and struct.pack("<64i", *(i * i for i in range(64))) in blob.code


def test_linked_code_runs():
    blob = link.Object(compile_object(table_kernel(), host_target())).link("kernel")
    out = (execute.ctypes.c_int32 * 64)()
    kernel = execute.Kernel(code_object(blob))
    pointers = (execute.ctypes.c_void_p * 1)(execute.ctypes.addressof(out))
    kernel._call(execute.ctypes.addressof(pointers), None, None, 5, 60)
    assert list(out) == [0] * 5 + [i * i + 3 for i in range(5, 60)] + [0] * 4


def shorts(numbers: range) -> str:
    """For each number a function that writes it: constants of two bytes, all in one section."""
    text = ""
    for i in numbers:
        f = Function(f"write{i}", PARAMS)
        f.declarations[f"number{i}"] = f'@number{i} = private constant i16 {i}, section ".rodata", align 2'
        f.store(f.load("i16", Value("ptr", f"@number{i}")), f.load("ptr", f.params[0]))
        text += f.text()
    return text


@pytest.mark.parametrize("count", [1, 31, 32, 33, 64])
@pytest.mark.parametrize("target", [name for name in ("x86-64-v3", "x86-64-v4") if runs_here(name)])
def test_constants_of_two_bytes(target, count):
    """32 of them fill 64 bytes, but are no vector of that size."""
    numbers = range(1000, 1000 + count)
    whole = link.Object(compile_object(shorts(numbers), target))
    for i in numbers:
        kernel = execute.Kernel(code_object(whole.link(f"write{i}")))
        out = (execute.ctypes.c_int16 * 1)(-1)
        pointers = (execute.ctypes.c_void_p * 1)(execute.ctypes.addressof(out))
        kernel._call(execute.ctypes.addressof(pointers), None, None, 0, 1)
        assert list(out) == [i]


def calls_part() -> str:
    f = Function("kernel", PARAMS)
    f.call("void", "part", f.params[0])
    return f.text()


@pytest.mark.parametrize("target", TARGETS)
def test_code_takes_the_alignment_of_what_it_holds(target):
    by_page = target.startswith("aarch64")
    table = link.Object(compile_object(table_kernel(), target)).link("kernel")
    assert table.alignment == (link.PAGE if by_page else link.ALIGNMENT)
    caller = link.Object(compile_object(calls_part(), target))
    plain = caller.link("kernel", {"part": link.Blob(b"\0" * 8, 0)})
    assert plain.alignment == link.ALIGNMENT
    for part in (table, link.Blob(b"\1" * 8, 4, 1024)):
        blob = caller.link("kernel", {"part": part})
        assert blob.alignment == part.alignment
        assert blob.code.index(part.code) % part.alignment == 0
        assert link.Object(compile_object(calls_part(), target)).link("kernel", {"part": blob}).alignment == (
            part.alignment
        )


def test_what_needs_more_than_a_page_is_refused():
    text = table_kernel().replace("@table", "@wide")
    wide = TABLE.replace("@table", "@wide").replace("align 64", "align 8192")
    with pytest.raises(link.LinkError, match="8192"):
        link.Object(compile_object(wide + text, host_target())).link("kernel")


def test_undefined_symbol_is_refused_by_name():
    f = Function("kernel", PARAMS)
    f.call("void", "somewhere_else")
    with pytest.raises(link.LinkError, match="somewhere_else"):
        link.Object(compile_object(f.text(), host_target())).link("kernel")


def test_writable_data_is_refused():
    f = Function("kernel", PARAMS)
    f.declarations["state"] = '@state = global i64 7, section ".data.state"'
    f.store(f.params[3], f.op("ptr", "getelementptr i8, ptr @state, i64 0"))
    with pytest.raises(link.LinkError, match=r"\.data.* writable"):
        link.Object(compile_object(f.text(), host_target())).link("kernel")


def test_missing_entry_and_garbage_are_refused():
    elf = compile_object(table_kernel(), host_target())
    with pytest.raises(link.LinkError, match="'other'"):
        link.Object(elf).link("other")
    with pytest.raises(link.LinkError, match="ELF64"):
        link.Object(b"MZ" + elf[2:]).link("kernel")


def test_aarch64_page_and_offset_fields():
    blob = bytearray(struct.pack("<II", 0x90000008, 0x91000108) + bytes(0x3000))
    link._adr_page(blob, 0, 0x2A40)
    link._lo12(0)(blob, 4, 0x2A40)
    adrp, add = struct.unpack_from("<II", blob)
    assert (adrp >> 29 & 3) | (adrp >> 5 & 0x7FFFF) << 2 == 2 and add >> 10 & 0xFFF == 0xA40
    assert adrp & 0x1F == 8 and add & 0x3FF == 0x108
