/* Lists on the command line: "[1, 2]", "[0.5]", "[true]" or "[\"a\", \"b\"]". */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runner/runner.h"

static const char *after_spaces(const char *at) { return at + strspn(at, " \t\n"); }

/* The end of a word: a number, true or false; NULL for another one. */
static const char *parse_word(const char *at, svm_value *item) {
  size_t n = strcspn(at, ",] \t\n");
  int is_true = n == 4 && !strncmp(at, "true", n);
  if (is_true || (n == 5 && !strncmp(at, "false", n)))
    return item->tag = SVM_TAG_BOOL, item->integer = is_true, at + n;
  char *end;
  errno = 0;
  item->tag = SVM_TAG_INT, item->integer = strtoll(at, &end, 10);
  if (n && end == at + n) return errno ? NULL : end;
  item->tag = SVM_TAG_FLOAT, item->number = strtod(at, &end);
  return n && end == at + n ? end : NULL;
}

/* The end of a string, which has no escapes; NULL where there is none. */
static const char *parse_text(const char *at, svm_value *item) {
  size_t n = strcspn(at, "\"\\");
  item->tag = SVM_TAG_STR, item->text = at, item->length = (int64_t)n;
  return at[n] == '"' ? at + n + 1 : NULL;
}

/* The number of items; -1 for a text that is no list. `items` has room for one more than there are commas. */
static int64_t parse_items(const char *text, svm_value *items) {
  const char *at = after_spaces(text + 1);
  int64_t n = 0;
  if (*at == ']') return *after_spaces(at + 1) ? -1 : 0;
  for (;;) {
    at = *at == '"' ? parse_text(at + 1, &items[n++]) : parse_word(at, &items[n++]);
    if (!at) return -1;
    at = after_spaces(at);
    if (*at == ']') return *after_spaces(at + 1) ? -1 : n;
    if (*at != ',') return -1;
    at = after_spaces(at + 1);
  }
}

int parse_list(const char *text, svm_value *value) {
  size_t most = 1;
  for (const char *at = text; *at; at++) most += *at == ',';
  svm_value *items = calloc(most, sizeof *items);
  if (!items) return out_of_memory("a list");
  int64_t n = *text == '[' ? parse_items(text, items) : -1;
  svm_error error;
  int code = n < 0 ? usage("not a list, such as [1, 2], [0.5], [true] or [\"a\"]", text) : 0;
  if (!code && svm_value_make(SVM_TAG_LIST, items, n, value, &error)) code = report(EXIT_RUN, &error);
  free(items);
  return code;
}
