"""Programs in distributed engines: Ray, Apache Beam, Spark. No other part of shapevm imports this.

`rows`: a program over rows of different sizes, which the others use; `ray`, `beam`, `spark`: one module for
each engine, which must be installed (extras `shapevm[ray]`, `shapevm[beam]`, `shapevm[spark]`).
`pyinstaller`: hooks for freezing a program with PyInstaller.
"""
