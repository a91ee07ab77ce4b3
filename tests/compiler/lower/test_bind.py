"""Binding, text in and text out: the sizes of a spec become its parameters."""

from shapevm.compiler.lower.bind import bind

HEAD = 'graph "g"\n symbol s min=1 multiple_of=1\n symbol t min=1 multiple_of=1\n input %x: f32[s, t]\n'


def test_equal_sizes_are_one_parameter(turns):
    before = """
      %k1: f32[s, t] = kernel(%x) {spec=@a, label="neg"}
      output %k1 as "y"

      spec @a symbolic
        nest n_dims=0 domain=[s*t]
        b0 f32[s*t]
        b1 f32[s*t] output
        v0 = load f32 b0[i0]
        v1 = neg f32 v0
        v2 = store f32 v1 b1[i0]
    """
    after = """
      %k1: f32[s, t] = kernel(%x) {spec=@a, label="neg", dims=[s*t]}
      output %k1 as "y"

      spec @a
        nest n_dims=1 domain=[n0]
        b0 f32[n0]
        b1 f32[n0] output
        v0 = load f32 b0[i0]
        v1 = neg f32 v0
        v2 = store f32 v1 b1[i0]
    """
    turns(bind, HEAD + before, after)


def test_offsets_and_numbers_in_bodies_are_parameters(turns):
    """The rows backwards, plus t: neither is below 0 where loops are empty."""
    before = """
      %k1: f32[s, t] = kernel(%x) {spec=@a, label="add"}
      output %k1 as "y"

      spec @a symbolic
        nest n_dims=0 domain=[s,t]
        b0 f32[s,t]
        b1 f32[s,t] output
        v0 = load f32 b0[-1*i0+(s-1),i1]
        v1 = dim i64 size=t
        v2 = cast f32 v1
        v3 = add f32 v0 v2
        v4 = store f32 v3 b1[i0,i1]
    """
    after = """
      %k1: f32[s, t] = kernel(%x) {spec=@a, label="add", dims=[s, t, Max(0,s-1), Max(0,t)]}
      output %k1 as "y"

      spec @a
        nest n_dims=4 domain=[n0,n1]
        b0 f32[n0,n1]
        b1 f32[n0,n1] output
        v0 = load f32 b0[-1*i0+n2,i1]
        v1 = dim i64 size=n3
        v2 = cast f32 v1
        v3 = add f32 v0 v2
        v4 = store f32 v3 b1[i0,i1]
    """
    turns(bind, HEAD + before, after)


def test_a_bound_kernel_stays(turns):
    text = """
      %k1: f32[s, t] = kernel(%x) {spec=@a, dims=[s*t], label="copy"}
      output %k1 as "y"

      spec @a
        nest n_dims=1 domain=[n0]
        b0 f32[n0]
        b1 f32[n0] output
        v0 = load f32 b0[i0]
        v1 = store f32 v0 b1[i0]
    """
    turns(bind, HEAD + text, text)
