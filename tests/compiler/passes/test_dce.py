from shapevm.compiler.passes.dce import dce

HEAD = 'graph "g"\n symbol s min=0 multiple_of=1\n input %x: f32[s]\n input %c: bool\n'


def test_chains_die_from_their_end(rewrite):
    before = """
      %a: f32[s] = neg(%x)
      %b: f32[s] = exp(%a)
      %d: f32[s] = add(%b, %a)
      %e: f32[s] = abs(%x)
      output %e as "y"
    """
    rewrite(dce, HEAD + before, '%e: f32[s] = abs(%x)\n output %e as "y"')


def test_regions_are_cleaned_and_keep_what_they_use(rewrite):
    before = """
      %a: f32[s] = neg(%x)
      %b: f32[s] = exp(%x)
      %r: f32[s] = if(%c)
        then:
          %dead: f32[s] = abs(%b)
          yield %a
        else:
          yield %x
      output %r as "y"
    """
    after = """
      %a: f32[s] = neg(%x)
      %r: f32[s] = if(%c)
        then:
          yield %a
        else:
          yield %x
      output %r as "y"
    """
    rewrite(dce, HEAD + before, after)


def test_unused_control_flow_goes_with_all_it_used(rewrite):
    before = """
      %a: f32[s] = neg(%x)
      %r: f32[s] = if(%c)
        then:
          %b: f32[s] = exp(%a)
          yield %b
        else:
          yield %a
      output %x as "y"
    """
    rewrite(dce, HEAD + before, 'output %x as "y"')


def test_effects_stay(rewrite):
    text = """
      %r: bool = if(%c)
        then:
          = extern(%x) {name="print", types=[]}
          yield %c
        else:
          yield %c
      output %x as "y"
    """
    rewrite(dce, HEAD + text, text)


def test_values_that_name_a_used_size_stay(rewrite):
    text = """
      %t: i64[] = reshape(%x0) {shape=[]}
      %n: int(u0) = item(%t) {symbol="u0"}
      %m: int(u1) = item(%t) {symbol="u1"}
      %i: i64[u0] = iota() {start=0, step=1, length=u0, dtype="i64"}
      output %i as "y"
    """
    rewrite(
        dce, HEAD + " input %x0: i64[1]\n" + text, text.replace('%m: int(u1) = item(%t) {symbol="u1"}', "")
    )
