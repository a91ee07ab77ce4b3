"""Programs in engines that run many machines: Ray, Apache Beam, Spark. Nothing of shapevm imports this.

`rows`: a program over rows of different sizes, which the others use; `ray`, `beam`, `spark`: one module for
each engine, which it needs installed (extras `shapevm[ray]`, `shapevm[beam]`, `shapevm[spark]`).
"""
