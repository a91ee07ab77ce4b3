from shapevm.compiler.ir.text import format_graph, parse
from shapevm.compiler.passes.place_memory import place_memory

HEAD = 'graph "g"\n input %x: f32[4]\n input %c: bool\n'


def placed(text: str) -> list[str]:
    graph = parse(HEAD + text)
    place_memory(graph)
    return [line.strip().partition("  #")[0] for line in format_graph(graph).splitlines()[3:]]


def test_freed_after_the_last_use_but_not_inputs_constants_results():
    text = """
      %w: f32[4] = constant() {array=float32[4](1.0, 2.0, 3.0, 4.0), dtype="f32", name="w"}
      %a: f32[4] = add(%x, %w)
      %v: f32[2, 2] = reshape(%a) {shape=[2, 2]}
      %b: f32[2, 2] = neg(%v)
      %d: f32[2, 2] = add(%v, %b)
      output %d as "y"
    """
    assert placed(text) == [
        '%w: f32[4] = constant() {array=float32[4](1.0, 2.0, 3.0, 4.0), dtype="f32", name="w"}',
        "%a: f32[4] = add(%x, %w)",
        "%v: f32[2, 2] = reshape(%a) {shape=[2, 2]}",
        "= free(%a)",
        "%b: f32[2, 2] = neg(%v)",
        "%d: f32[2, 2] = add(%v, %b)",
        "= free(%v, %b)",
        'output %d as "y"',
    ]


def test_a_use_in_a_region_is_a_use_by_its_node():
    text = """
      %a: f32[4] = neg(%x)
      %r: f32[4] = if(%c)
        then:
          %b: f32[4] = exp(%a)
          %d: f32[4] = exp(%b)
          yield %d
        else:
          yield %x
      output %r as "y"
    """
    assert placed(text) == [
        "%a: f32[4] = neg(%x)",
        "%r: f32[4] = if(%c)",
        "then:",
        "%b: f32[4] = exp(%a)",
        "%d: f32[4] = exp(%b)",
        "= free(%b)",
        "yield %d",
        "else:",
        "yield %x",
        "= free(%a)",
        'output %r as "y"',
    ]


def test_what_a_loop_carries():
    text = """
      %a: f32[4] = neg(%x)
      %r: f32[4] = while(%a)
        cond(%p: f32[4]):
          %t: f32[4] = neg(%p)
          %i: bool = item(%t)
          yield %i
        body(%q: f32[4]):
          %b: f32[4] = exp(%q)
          yield %b
      output %r as "y"
    """
    assert placed(text) == [
        "%a: f32[4] = neg(%x)",
        "%r: f32[4] = while(%a)",
        "cond(%p: f32[4]):",
        "%t: f32[4] = neg(%p)",
        "%i: bool = item(%t)",
        "= free(%t)",
        "yield %i",
        "body(%q: f32[4]):",
        "%b: f32[4] = exp(%q)",
        "= free(%q)",
        "yield %b",
        "= free(%a)",
        'output %r as "y"',
    ]
