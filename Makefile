# `make help` lists the targets. The first one that needs it sets up $(VENV).
# Variables: PYTHON (interpreter to start from), VENV (virtual environment), ARGS (handed to the program),
# ROUNDS (of fuzzing).
PYTHON ?= python3
VENV ?= .venv
ARGS ?=
ROUNDS ?= 10

SHELL := /bin/sh
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help wheel dev demo models modules operator operators test quick fenced hosts integrations java rust browser aarch64 aarch64-tools check lint types layers generated package bench roofline instructions fuzz mutants failures mutation onnx signals orphans asan tsan regen rebuild clean format

PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --no-input
INSTALL := $(PIP) install -q -c constraints.txt
DEPS := $(VENV)/.shapevm-dependencies
comma := ,
BUILT := $(VENV)/.shapevm-built
C_SOURCES := $(wildcard runtime_c/*/*.c runtime_c/*/*.h runtime_c/*.py runtime_c/sdk/*) runtime_c/CMakeLists.txt
# cmake and ninja may live in the virtual environment.
export PATH := $(abspath $(VENV))/bin:$(PATH)

help: ## this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

# --- setting up --------------------------------------------------------------
$(DEPS): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"PYTHON=$(PYTHON) is Python {v[0]}.{v[1]}; shapevm needs 3.11 or newer: make PYTHON=python3.11")'
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(INSTALL) scikit-build-core cffi
	$(INSTALL) `$(PY) -c 'from scikit_build_core.build import get_requires_for_build_editable as needs; print(*needs())'` pip
	$(INSTALL) --no-build-isolation -e '.[dev]'
	$(INSTALL) --no-deps --target $(VENV)/vision torchvision pillow # apart: see tests/models/vision.py
	$(INSTALL) --no-deps silero-vad ddddocr # without torchaudio, opencv, ..: only their models are used
	@touch $@

$(BUILT): $(DEPS) $(C_SOURCES)
	$(INSTALL) --no-build-isolation --no-deps -e .
	@touch $@

dev: $(BUILT) ## the virtual environment with an editable install

rebuild: ## only build the C again into the editable install of VENV
	$(INSTALL) --no-build-isolation --no-deps -e .

# --- running -----------------------------------------------------------------
demo: $(BUILT) ## one model at many shapes
	$(PY) examples/demo.py $(ARGS)

test: $(BUILT) ## every test, on all cores; of long rows of cases alike a quarter, drawn anew (ARGS=--drawn=1: all)
	OMP_NUM_THREADS=1 $(PY) -m pytest tests -n auto --dist worksteal $(ARGS)

# One of each layer: IR, passes, emission, kernel families, artifact, verifier, public API, the tour.
QUICK = tests/compiler/ir tests/compiler/passes tests/compiler/emit tests/jit/families/test_table.py tests/vm/test_isa.py \
	tests/vm/test_assembler.py tests/vm/test_verify.py tests/shapevm/test_api.py tests/packaging/test_tour.py
quick: $(BUILT) ## a test of every layer, in less than a minute on two idle cores
	$(PY) -m pytest -q $(QUICK) -n auto $(ARGS)

# Of tests that compute: every size of a test's tensors ends or begins at a page.
NUMERIC = tests/compiler tests/jit tests/models tests/modules tests/opinfo tests/vm
FENCE = LD_PRELOAD=$(abspath build/fence.so) SVM_CPU=x86-64-v3
fenced: $(BUILT) ## a share of the numeric tests as for AVX2 alone, tensors between pages that nobody may touch (ARGS=--sample=1: all)
	@mkdir -p build
	$(CC) -O1 -Wall -Wextra -Werror -shared -fPIC -o build/fence.so tests/fence.c
	OMP_NUM_THREADS=1 $(FENCE) $(PY) -m pytest $(NUMERIC) --ignore tests/compiler/ir/test_hostile_text.py -n auto --dist worksteal --sample=0.05 $(ARGS)

# Debian's packages, where they are not there yet; see tests/runtime_c/test_aarch64.py.
AARCH64 = gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static
AS_ROOT = $(if $(filter 0,$(shell id -u)),,sudo)
APT = $(AS_ROOT) apt-get -qq -o DPkg::Lock::Timeout=300 # another installation may be running
aarch64-tools:
	@which aarch64-linux-gnu-gcc qemu-aarch64-static >/dev/null || { $(APT) update && \
	DEBIAN_FRONTEND=noninteractive $(APT) install -y --no-install-recommends $(AARCH64); }

aarch64: $(BUILT) aarch64-tools ## artifacts for AArch64 under qemu against x86-64-v3's bits; installs the cross compiler
	AARCH64_REQUIRED=1 $(PY) -m pytest tests/runtime_c/test_aarch64.py -q $(ARGS)

# The engines in an environment of their own (1.7 GB): Beam wants another pillow. The wheel is today's source.
ENGINES = build/engines
ENGINES_PIP = $(ENGINES)/bin/python -m pip --disable-pip-version-check --no-input install -q
java:
	@which java >/dev/null || { $(APT) update && \
	DEBIAN_FRONTEND=noninteractive $(APT) install -y --no-install-recommends default-jre-headless; }

browser:
	@which chromium >/dev/null || { $(APT) update && \
	DEBIAN_FRONTEND=noninteractive $(APT) install -y --no-install-recommends chromium; }

rust:
	@which rustc >/dev/null || { $(APT) update && \
	DEBIAN_FRONTEND=noninteractive $(APT) install -y --no-install-recommends rustc; }

integrations: $(BUILT) java ## Ray, Beam and Spark themselves, with workers killed in the middle; installs them and a Java runtime
	rm -rf $(ENGINES)/wheel
	$(PIP) wheel -q --no-deps --no-build-isolation -w $(ENGINES)/wheel .
	test -x $(ENGINES)/bin/python || $(PYTHON) -m venv $(ENGINES)
	grep -v ^pillow constraints.txt >$(ENGINES)/constraints.txt
	$(ENGINES_PIP) -c $(ENGINES)/constraints.txt `ls $(ENGINES)/wheel/shapevm-*.whl`'[ray,beam,spark]' llvmlite
	$(ENGINES_PIP) --no-deps --force-reinstall $(ENGINES)/wheel/shapevm-*.whl
	ENGINES_PYTHON=$(abspath $(ENGINES)/bin/python) $(PY) -m pytest tests/shapevm/integrations -q $(ARGS)

# Servers, pools and freezers in an environment of their own, without torch. The wheel is today's source.
HOSTS = build/hosts
HOSTS_PIP = $(HOSTS)/bin/python -m pip --disable-pip-version-check --no-input install -q
hosts: $(BUILT) ## FastAPI, gunicorn, uWSGI, gevent, eventlet, billiard, PyInstaller with shapevm in them, RapidOCR, magika, ddddocr on it, clients of its server; installs those
	rm -rf $(HOSTS)/wheel
	$(PIP) wheel -q --no-deps --no-build-isolation -w $(HOSTS)/wheel .
	test -x $(HOSTS)/bin/python || $(PYTHON) -m venv $(HOSTS)
	$(HOSTS_PIP) -c constraints.txt `ls $(HOSTS)/wheel/shapevm-*.whl`"[onnx,serve,text]" llvmlite chromadb langchain-core llama-index-core billiard cohere ddddocr eventlet fastapi gevent gunicorn kubernetes-validate magika onnxruntime openai pyinstaller pyuwsgi rapidocr-onnxruntime 'tritonclient[http]' uvicorn
	$(HOSTS_PIP) --no-deps --force-reinstall $(HOSTS)/wheel/shapevm-*.whl
	HOSTS_PYTHON=$(abspath $(HOSTS)/bin/python) $(PY) -m pytest tests/hosts tests/shapevm/integrations/test_text.py -q -n 2 $(ARGS)

bench: $(BUILT) ## the benchmarks
	$(PY) benchmarks/run.py $(ARGS)

operators: $(BUILT) ## every operator of PyTorch's test database against eager: docs/operators.md (hours; ARGS='--ops ^add')
	$(PY) -m tests.opinfo.coverage --page docs/operators.md $(ARGS)

operator: $(BUILT) ## judge OP, a name of PyTorch's test database such as OP=atanh, against eager: exit 1 unless all is native
	$(PY) -m tests.opinfo.coverage --ops '^$(OP)$$' --again all --verbose --native $(ARGS)

modules: $(BUILT) ## every module of PyTorch's test database against eager: docs/modules.md (hours; ARGS='--ops Conv --limit 2')
	$(PY) -m tests.modules.coverage --page docs/modules.md $(ARGS)

models: $(BUILT) ## families of models against eager: docs/models.md
	$(PY) -m tests.models.zoo --page docs/models.md $(ARGS)

roofline: $(BUILT) ## every kernel of a model (ARGS=MODEL; else the encoder) beside the limits of the machine, and the ten that lose most
	$(PY) benchmarks/roofline.py $(ARGS)

instructions: $(BUILT) ## instructions of fixed kernels against those known (valgrind)
	$(PY) benchmarks/instructions.py $(ARGS)

# --- checking ----------------------------------------------------------------
check: lint types layers generated docs package instructions ## lint, types, import contracts, generated files, links of the documentation, the wheel in a clean environment, instruction counts

# C that people write: what `vm/isa.py` generates has its own form.
WRITTEN_C = $(shell git ls-files '*.c' '*.h' '*.cpp' | grep -v -e '\.gen\.h$$' -e '/svm_codes\.h$$')

lint: $(DEPS) ## ruff: rules and format; clang-format
	$(PY) -m ruff check .
	$(PY) -m ruff format --check -q .
	$(VENV)/bin/clang-format --dry-run -Werror $(WRITTEN_C)

format: $(DEPS) ## write Python and C as `make lint` wants them
	$(PY) -m ruff format -q .
	$(VENV)/bin/clang-format -i $(WRITTEN_C)

types: build/typing ## mypy
	MYPYPATH=build/typing $(PY) -m mypy --cache-dir build/mypy -p shapevm

layers: build/typing ## who may import whom
	$(PY) tests/packaging/layers.py
	$(PY) tests/packaging/c_layers.py

generated: $(BUILT) ## generated files are those in the repository
	$(PY) -m shapevm.vm.isa --check

# The tree as it is installed: type checkers and import graphs do not follow an editable install's hook,
# nor do they read the compiled module.
.PHONY: build/typing
build/typing: $(DEPS)
	@rm -rf $@ && mkdir -p $@/shapevm/vm
	@ln -s $(CURDIR)/shapevm/* $(CURDIR)/compiler $(CURDIR)/jit $@/shapevm/
	@ln -s $(CURDIR)/vm/* $@/shapevm/vm/
	@printf 'from typing import Any\n\nffi: Any\nlib: Any\n' > $@/shapevm/vm/_runtime.py

# A wheel, installed alone into a clean environment, where it runs what was compiled here.
define smoke
	rm -rf build/clean && $(PYTHON) -m venv build/clean
	build/clean/bin/python -m pip --disable-pip-version-check --no-input install -q -c constraints.txt $(1)
	mkdir -p build/clean/artifact && $(PY) tests/packaging/make_artifact.py build/clean/artifact encoder
	cd build/clean && bin/python -P $(CURDIR)/tests/packaging/smoke.py artifact
endef

package: $(BUILT) ## sdist, wheel built from it, installed alone into a clean environment, smoke test there
	rm -rf build/dist
	$(PY) -c 'from scikit_build_core.build import build_sdist; build_sdist("build/dist")'
	$(PIP) wheel -q --no-deps --no-build-isolation -w build/dist build/dist/shapevm-*.tar.gz
	$(call smoke,build/dist/shapevm-*.whl)

# In an environment of its own: zig's compiler is big.
WHEEL_TOOLS = build/wheel-tools
$(WHEEL_TOOLS)/ready: pyproject.toml constraints.txt Makefile
	test -x $(WHEEL_TOOLS)/bin/python || $(PYTHON) -m venv $(WHEEL_TOOLS)
	$(WHEEL_TOOLS)/bin/python -m pip --disable-pip-version-check --no-input install -q -c constraints.txt \
	  abi3audit auditwheel cibuildwheel cffi scikit-build-core wheel ziglang cmake ninja
	@touch $@

try_aarch64 = mkdir -p build/foreign/artifact && $(PY) tests/packaging/make_artifact.py build/foreign/artifact aarch64 x86-64-v3 && \
	$(PY) scripts/try_wheel.py build/wheels/shapevm-*_aarch64.whl build/foreign build/foreign/artifact

wheel: $(BUILT) $(if $(filter aarch64,$(ARGS)),aarch64-tools) $(WHEEL_TOOLS)/ready ## manylinux_2_28 wheels in build/wheels, checked and tried: ARGS='x86_64 aarch64' (the default is x86_64)
	PATH=$(abspath $(WHEEL_TOOLS))/bin:$$PATH $(WHEEL_TOOLS)/bin/python scripts/make_wheel.py build/wheels $(ARGS)
	$(if $(filter $(or $(ARGS),x86_64),x86_64),$(call smoke,build/wheels/shapevm-*_x86_64.whl))
	$(if $(filter aarch64,$(ARGS)),$(try_aarch64))

.PHONY: versions
versions: $(BUILT) ## the oldest and newest versions of Python, torch and the rest that are claimed (gigabytes; ARGS=run: without torch)
	$(PY) scripts/versions.py build/versions $(ARGS)

.PHONY: release
release: $(DEPS) ## "Unreleased" becomes the version's heading; commit and tag (ARGS=--check: only compare version, headings, tags)
	$(PY) scripts/release.py $(ARGS)

# The site's pages lie as they do in the repository, so that their links are right in both.
PAGES = README.md SECURITY.md CONTRIBUTING.md CHANGELOG.md LICENSE docs
.PHONY: docs
docs: build/typing ## the documentation as a site, in build/site; a broken link fails
	rm -rf build/pages && mkdir -p build/pages/benchmarks
	for page in $(PAGES); do ln -s "$(CURDIR)/$$page" build/pages/; done
	ln -s "$(CURDIR)/benchmarks/log" build/pages/benchmarks/
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build -q

# --- the C runtime under sanitizers ------------------------------------------
# A second installation with its own build; a sanitizer's library must be in the process before Python.
CC ?= cc
library = $(shell $(CC) -print-file-name=$(1).so)
SANITIZED = $(PY) -P tests/packaging/sanitized.py
ASAN = ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 LD_PRELOAD="$(call library,libasan) $(call library,libubsan)" $(SANITIZED) build/asan/site
TSAN = TSAN_OPTIONS=ignore_noninstrumented_modules=1 LD_PRELOAD="$(call library,libtsan)" $(SANITIZED) build/tsan/site
sanitized = rm -rf build/$(1)/site && $(INSTALL) --no-build-isolation --no-deps --target build/$(1)/site \
	-C cmake.define.SVM_SANITIZE=$(2) -C cmake.build-type=RelWithDebInfo -C install.strip=false \
	-C build-dir=build/$(1)/c .

asan: $(BUILT) ## the tests of the C runtime under AddressSanitizer and UBSan
	$(call sanitized,asan,address$(comma)undefined)
	$(ASAN) tests/vm --ignore tests/vm/test_isa.py --ignore tests/vm/test_generate.py $(ARGS)

tsan: $(BUILT) ## the tests of calls and threads under ThreadSanitizer
	$(call sanitized,tsan,thread)
	SVM_TEST_CLOSES=1000 $(TSAN) tests/vm/test_machine.py tests/vm/test_handle.py $(ARGS)

fuzz: $(BUILT) ## mutated artifacts into the C loader, random chains in bands, random programs C against Python: ROUNDS times, ASan and UBSan
	cmake -S runtime_c -B build/fuzz -DSVM_SANITIZE=address,undefined
	cmake --build build/fuzz --target fuzz fuzz_bands
	$(PY) tests/packaging/make_artifact.py build/fuzz
	for round in $$(seq $(ROUNDS)); do build/fuzz/fuzz build/fuzz/model.svm 2000 $$(date +%s)$$round || exit 1; done
	for round in $$(seq $(ROUNDS)); do build/fuzz/fuzz_bands 20000 $$(date +%s)$$round || exit 1; done
	$(call sanitized,asan,address$(comma)undefined)
	for round in $$(seq $(ROUNDS)); do $(ASAN) -q -x tests/vm/test_differential.py $(ARGS) || exit 1; done

mutation: $(BUILT) ## mutants of the source, and whether tests notice them: ARGS='--count 300 --seed 1'; see tests/mutation
	test -d build/mutation || $(PY) -m tests.mutation --collect -n auto
	$(PY) -m tests.mutation $(ARGS)

mutants: $(BUILT) ## structure-aware mutants of artifacts, arrays, profiles, kernel specs, hashes right: ARGS='200000 SEED'
	cmake -S runtime_c -B build/fuzz -DSVM_SANITIZE=address,undefined
	cmake --build build/fuzz --target fuzz
	$(PY) -m tests.runtime_c.mutants $(ARGS)

onnx: $(BUILT) ## every case by which ONNX defines its operators; damaged models, imported or refused in a sentence: ARGS='100000 SEED'
	$(PY) -m tests.compiler.frontends.onnx.nodes
	$(PY) -m tests.compiler.frontends.onnx.onnx_mutants $(ARGS)

failures: $(BUILT) ## the n-th malloc, mmap, pthread_create, write ... of the runner fails, for every n
	$(PY) -m tests.runtime_c.failures $(ARGS)

signals: $(BUILT) ## forks of a busy process, and Ctrl-C at random moments: 1,000 each
	$(PY) -m tests.stress.signals $(ARGS)

orphans: $(BUILT) ## 300 short programs on a busy machine: no process is left one second after each
	$(PY) -m tests.stress.orphans $(ARGS)

# --- the rest ----------------------------------------------------------------
regen: $(BUILT) ## write the generated files again
	$(PY) -m shapevm.vm.isa

clean: ## remove builds and caches (not the virtual environment)
	rm -rf build .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -f $(BUILT)
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
