"""The page of the C API holds each declaration below its comment."""

from shapevm.vm.generate import ROOT, api_page

HEADER = """/* svm.h: the API.
 *
 * A program is
 * immutable.
 *
 * cffi reads this.
 */
/* --- cffi begin --- */

/* Values ------------- */

/* A value,
 * tagged. */
typedef struct svm_value {
  int32_t tag; /* SVM_TAG_... */
} svm_value;

int32_t svm_n(void);

/* --- cffi end --- */
"""


def test_page() -> None:
    page = api_page(HEADER).partition("how to use it.")[2]
    structure = "```c\ntypedef struct svm_value {\n  int32_t tag; /* SVM_TAG_... */\n} svm_value;\n```"
    function = "```c\nint32_t svm_n(void);\n```"
    assert (
        page == f"\n\nA program is immutable.\n\n## Values\n\nA value, tagged.\n\n{structure}\n\n{function}\n"
    )


def test_every_function_is_on_the_page() -> None:
    page = (ROOT / "docs" / "c-api.md").read_text()
    for name in ("svm_open_path", "svm_call", "svm_output_size", "svm_plugin", "svm_close"):
        assert name in page
