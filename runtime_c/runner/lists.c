/* Lists on the command line: "[1, 2]", "[0.5]", "[true]" or "[\"a\", \"b\"]". */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
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
  item->tag = SVM_TAG_FLOAT, item->number = text_number(at, &end);
  return n && end == at + n ? end : NULL;
}

/* The value of four hexadecimal digits, -1 for others. */
static int32_t parse_hex(const char *at) {
  int32_t made = 0;
  for (int i = 0; i < 4; i++) {
    const char *digits = "0123456789abcdef0123456789ABCDEF", *found = at[i] ? strchr(digits, at[i]) : NULL;
    if (!found) return -1;
    made = made * 16 + (int32_t)((found - digits) % 16);
  }
  return made;
}

/* Write a code point as UTF-8; returns the position after it. */
static char *put_code_point(char *to, uint32_t c) {
  int n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
  static const uint8_t FIRST[] = {0, 0, 0xC0, 0xE0, 0xF0};
  for (int i = n - 1; i > 0; i--, c >>= 6) to[i] = (char)(0x80 | (c & 0x3F));
  to[0] = (char)(FIRST[n] | c);
  return to + n;
}

/* Decode the escape after a backslash; returns the position after it, NULL for an invalid JSON escape. */
static const char *parse_escape(const char *at, char **to) {
  static const char NAMES[] = "\"\\/bfnrt", VALUES[] = "\"\\/\b\f\n\r\t";
  const char *found = *at ? strchr(NAMES, *at) : NULL;
  if (found) return *(*to)++ = VALUES[found - NAMES], at + 1;
  int32_t c = *at == 'u' ? parse_hex(at + 1) : -1, low;
  if (c < 0 || (c >= 0xDC00 && c < 0xE000)) return NULL;
  at += 5;
  if (c >= 0xD800 && c < 0xDC00) { /* the first half of a pair */
    low = at[0] == '\\' && at[1] == 'u' ? parse_hex(at + 2) : -1;
    if (low < 0xDC00 || low >= 0xE000) return NULL;
    c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
    at += 6;
  }
  *to = put_code_point(*to, (uint32_t)c);
  return at;
}

/* The end of a JSON string, which is decoded into *room; NULL if there is none. */
static const char *parse_text(const char *at, char **room, svm_value *item) {
  char *to = *room;
  item->tag = SVM_TAG_STR, item->text = to;
  while (at && *at && *at != '"') {
    if (*at == '\\') at = parse_escape(at + 1, &to);
    else *to++ = *at++;
  }
  if (!at || !*at) return NULL;
  item->length = to - item->text;
  *room = to;
  return at + 1;
}

/* The number of items; -1 for a text that is not a list. `items` has room for one more than the number of
 * commas, `room` for the text, because no string is longer than its JSON form. */
static int64_t parse_items(const char *text, char *room, svm_value *items) {
  const char *at = after_spaces(text + 1);
  int64_t n = 0;
  if (*at == ']') return *after_spaces(at + 1) ? -1 : 0;
  for (;;) {
    at = *at == '"' ? parse_text(at + 1, &room, &items[n++]) : parse_word(at, &items[n++]);
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
  char *room = malloc(strlen(text) + 1);
  if (!items || !room) return free(items), free(room), out_of_memory("a list");
  int64_t n = *text == '[' ? parse_items(text, room, items) : -1;
  svm_error error;
  int code = n < 0 ? usage("not a list, such as [1, 2], [0.5], [true] or [\"a\"]", text) : 0;
  if (!code && svm_value_make(SVM_TAG_LIST, items, n, value, &error)) code = report(EXIT_RUN, &error);
  free(items);
  free(room);
  return code;
}
