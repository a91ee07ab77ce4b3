/* String methods: character classes, searches, parts, new strings. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memmem */
#endif
#include "values/string_functions.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "isa.gen.h"

/* Some bytes, not necessarily zero-terminated. */
typedef struct span {
  const char *bytes;
  int64_t length;
} span;

static span span_of(value v) { return (span){v.text->bytes, v.text->length}; }

static span part_of(span s, int64_t begin, int64_t end) { return (span){s.bytes + begin, end - begin}; }

/* The first index of `part` from `from` <= s.length on, -1 if there is none. */
static int64_t find_from(span s, span part, int64_t from) {
  const char *at = memmem(s.bytes + from, (size_t)(s.length - from), part.bytes, (size_t)part.length);
  return at ? at - s.bytes : -1;
}

static int32_t give(const string_call *c, int32_t tag, int64_t x) {
  *c->result = (value){tag, {x}};
  return SVM_OK;
}

static int32_t give_span(const string_call *c, span s) {
  return text_make(c->budget, s.bytes, s.length, c->result, c->error);
}

/* A new string of that length, which the caller writes into: NULL on an error. */
static char *give_room(const string_call *c, int64_t length) {
  return text_new(c->budget, length, c->result, c->error) ? NULL : c->result->text->bytes;
}

/* Kinds of bytes ------------------------------------------------------------------------------- */

enum { UPPER = 1, LOWER = 2, DIGIT = 4, SPACE = 8, LINE_END = 16, LETTER = UPPER | LOWER };

static int kinds_of(char byte) {
  uint8_t c = (uint8_t)byte;
  /* Each byte of the UTF-8 form of the line separators U+2028 and U+2029 is among TorchScript's line ends. */
  static const char LINE_ENDS[] = "\n\r\v\f\x1c\x1d\x1e\x85\xe2\x80\xa8\xa9";
  return (c >= 'A' && c <= 'Z' ? UPPER : 0) | (c >= 'a' && c <= 'z' ? LOWER : 0) |
         (c >= '0' && c <= '9' ? DIGIT : 0) | (c == ' ' || (c >= '\t' && c <= '\r') ? SPACE : 0) |
         (memchr(LINE_ENDS, byte, sizeof LINE_ENDS - 1) ? LINE_END : 0);
}

/* Whether the string has bytes, each of one of the kinds. */
static int32_t give_all(const string_call *c, int kinds) {
  span s = span_of(c->args[0]);
  int is_so = s.length > 0;
  for (int64_t i = 0; is_so && i < s.length; i++) is_so = (kinds_of(s.bytes[i]) & kinds) != 0;
  return give(c, SVM_TAG_BOOL, is_so);
}

static int32_t string_isalnum(const string_call *c) { return give_all(c, LETTER | DIGIT); }
static int32_t string_isalpha(const string_call *c) { return give_all(c, LETTER); }
static int32_t string_isdigit(const string_call *c) { return give_all(c, DIGIT); }
static int32_t string_isspace(const string_call *c) { return give_all(c, SPACE); }

/* Whether some bytes are of kind `own` and none is of the other case. */
static int32_t give_case(const string_call *c, int own) {
  span s = span_of(c->args[0]);
  int found = 0;
  for (int64_t i = 0; i < s.length; i++) found |= kinds_of(s.bytes[i]);
  return give(c, SVM_TAG_BOOL, (found & LETTER) == own);
}

static int32_t string_isupper(const string_call *c) { return give_case(c, UPPER); }
static int32_t string_islower(const string_call *c) { return give_case(c, LOWER); }

/* The string with capital letters before `n_upper` and small ones from there on. */
static int32_t give_letters(const string_call *c, int64_t n_upper) {
  span s = span_of(c->args[0]);
  char *made = give_room(c, s.length);
  for (int64_t i = 0; made && i < s.length; i++) {
    int letter = i < n_upper ? s.bytes[i] & ~0x20 : s.bytes[i] | 0x20;
    made[i] = (char)(kinds_of(s.bytes[i]) & LETTER ? letter : s.bytes[i]);
  }
  return made ? SVM_OK : c->error->code;
}

static int32_t string_upper(const string_call *c) { return give_letters(c, INT64_MAX); }
static int32_t string_lower(const string_call *c) { return give_letters(c, 0); }
static int32_t string_capitalize(const string_call *c) { return give_letters(c, 1); }

static int32_t give_stripped(const string_call *c, int at_begin, int at_end) {
  span s = span_of(c->args[0]), chars = span_of(c->args[1]);
  char is_dropped[256] = {0};
  for (int64_t i = 0; i < chars.length; i++) is_dropped[(uint8_t)chars.bytes[i]] = 1;
  int64_t begin = 0, end = s.length;
  while (at_end && end > begin && is_dropped[(uint8_t)s.bytes[end - 1]]) end--;
  while (at_begin && begin < end && is_dropped[(uint8_t)s.bytes[begin]]) begin++;
  return give_span(c, part_of(s, begin, end));
}

static int32_t string_strip(const string_call *c) { return give_stripped(c, 1, 1); }
static int32_t string_lstrip(const string_call *c) { return give_stripped(c, 1, 0); }
static int32_t string_rstrip(const string_call *c) { return give_stripped(c, 0, 1); }

/* Searches ------------------------------------------------------------------------------------- */

/* The bounds of a search in `n` bytes: those below 0 are counted from the end, an end of -1 is that. */
static void read_window(const string_call *c, int64_t n, int64_t *start, int64_t *end) {
  *start = c->args[2].integer;
  *end = c->args[3].integer;
  if (*start < 0) *start = *start + n > 0 ? *start + n : 0;
  if (*end < 0) *end = *end + n + 1 > 0 ? *end + n + 1 : 0;
}

/* The bytes from `start` to `end`, to the last one where that is before. */
static int32_t cut(const string_call *c, int64_t start, int64_t end, span *out) {
  span s = span_of(c->args[0]);
  if (start > s.length) {
    return status_fail(c->error, SVM_ERROR_INDEX,
                       "the search begins at %" PRId64 "; the string has %" PRId64 " bytes", start, s.length);
  }
  *out = part_of(s, start, end < start || end > s.length ? s.length : end);
  return SVM_OK;
}

/* A copy with the bytes in reverse order, to be dropped. */
static int32_t reversed(const string_call *c, span s, value *out) {
  if (text_new(c->budget, s.length, out, c->error)) return c->error->code;
  for (int64_t i = 0; i < s.length; i++) out->text->bytes[i] = s.bytes[s.length - 1 - i];
  return SVM_OK;
}

/* Where `part` is for the last time; -1 where it is not. From the end, so the time grows with the lengths. */
static int32_t find_last(const string_call *c, span s, span part, int64_t *at) {
  value back, back_part;
  if (reversed(c, s, &back)) return c->error->code;
  int32_t code = reversed(c, part, &back_part);
  if (!code) {
    int64_t found = find_from(span_of(back), span_of(back_part), 0);
    *at = found < 0 ? -1 : s.length - part.length - found;
    value_drop(c->budget, &back_part);
  }
  value_drop(c->budget, &back);
  return code;
}

/* The first or last index of the second string from start to end; -1 if there is none. */
static int32_t search(const string_call *c, int is_last, int64_t *at) {
  span s = span_of(c->args[0]), part = span_of(c->args[1]);
  int64_t start, end;
  read_window(c, s.length, &start, &end);
  if (end <= start) return *at = part.length ? -1 : start, SVM_OK;
  if (cut(c, start, end, &s)) return c->error->code;
  if (!is_last) *at = find_from(s, part, 0);
  else if (find_last(c, s, part, at)) return c->error->code;
  if (*at >= 0) *at += start;
  return SVM_OK;
}

static int32_t give_index(const string_call *c, int is_last) {
  int64_t at = 0;
  return search(c, is_last, &at) ? c->error->code : give(c, SVM_TAG_INT, at);
}

static int32_t string_find(const string_call *c) { return give_index(c, 0); }
static int32_t string_rfind(const string_call *c) { return give_index(c, 1); }

static int32_t string_count(const string_call *c) {
  span s = span_of(c->args[0]), part = span_of(c->args[1]);
  int64_t start, end, n = 0;
  if (c->args[2].integer > s.length) return give(c, SVM_TAG_INT, 0);
  read_window(c, s.length, &start, &end);
  if (!part.length && start < end) {
    return status_fail(c->error, SVM_ERROR_GUARD,
                       "count: the substring is empty; give one of at least one byte");
  }
  for (int64_t at = find_from(s, part, start); at >= 0 && at < end; n++)
    at = find_from(s, part, at + part.length);
  return give(c, SVM_TAG_INT, n);
}

static int32_t give_ends(const string_call *c, int at_end) {
  span s = span_of(c->args[0]), part = span_of(c->args[1]);
  int64_t start, end;
  read_window(c, s.length, &start, &end);
  if (cut(c, start, end, &s)) return c->error->code;
  if (part.length > s.length) return give(c, SVM_TAG_BOOL, 0);
  const char *at = s.bytes + (at_end ? s.length - part.length : 0);
  return give(c, SVM_TAG_BOOL, !memcmp(at, part.bytes, (size_t)part.length));
}

static int32_t string_startswith(const string_call *c) { return give_ends(c, 0); }
static int32_t string_endswith(const string_call *c) { return give_ends(c, 1); }

/* Parts ---------------------------------------------------------------------------------------- */

static int32_t string_item(const string_call *c) {
  span s = span_of(c->args[0]);
  int64_t index = c->args[1].integer, at = index < 0 ? index + s.length : index;
  if (at < 0 || at >= s.length) {
    return status_fail(c->error, SVM_ERROR_INDEX,
                       "string index %" PRId64 " is out of range; the string has %" PRId64 " bytes", index,
                       s.length);
  }
  return give_span(c, part_of(s, at, at + 1));
}

/* A bound of a slice, clamped to low .. high; `missing`: its default. */
static int64_t bound(int64_t x, int64_t n, int64_t low, int64_t high, int64_t missing) {
  if (x == INT64_MAX) return missing;
  if (x < 0) x += n;
  return x < low ? low : x > high ? high : x;
}

static int32_t string_slice(const string_call *c) {
  span s = span_of(c->args[0]);
  int64_t step = c->args[3].integer, down = step < 0, low = -down, high = s.length - down;
  if (step == 0 || step == INT64_MIN) {
    return status_fail(c->error, SVM_ERROR_GUARD,
                       "the step of a slice is %" PRId64 "; it must be neither 0 nor the least int", step);
  }
  int64_t start = bound(c->args[1].integer, s.length, low, high, down ? high : low);
  int64_t end = bound(c->args[2].integer, s.length, low, high, down ? low : high);
  int64_t way = down ? start - end : end - start, n = way > 0 ? (way - 1) / (down ? -step : step) + 1 : 0;
  char *made = give_room(c, n);
  if (!made) return c->error->code;
  if (step == 1) memcpy(made, s.bytes + start, (size_t)n);
  for (int64_t i = 0; step != 1 && i < n; i++) made[i] = s.bytes[start + i * step];
  return SVM_OK;
}

/* An empty list as the result, to be filled. */
static int32_t begin_list(const string_call *c) {
  return sequence_make(c->budget, SVM_TAG_LIST, 0, NULL, c->result, c->error);
}

/* Append a string to the list that is the result; on an error there is none any more. */
static int32_t add(const string_call *c, span s) {
  value item;
  int32_t code = text_make(c->budget, s.bytes, s.length, &item, c->error);
  if (code) {
    value_drop(c->budget, c->result);
    return code;
  }
  code = sequence_append(c->budget, *c->result, item, c->result, c->error);
  value_drop(c->budget, &item);
  return code;
}

static int32_t string_characters(const string_call *c) {
  span s = span_of(c->args[0]);
  if (begin_list(c)) return c->error->code;
  for (int64_t i = 0; i < s.length; i++) {
    if (add(c, part_of(s, i, i + 1))) return c->error->code;
  }
  return SVM_OK;
}

static int32_t check_separator(const string_call *c, span separator) {
  return separator.length ? SVM_OK : status_fail(c->error, SVM_ERROR_GUARD, "ValueError: empty separator");
}

static int32_t string_split(const string_call *c) {
  span s = span_of(c->args[0]), separator = span_of(c->args[1]);
  int64_t most = c->args[2].integer, begin = 0, at;
  if (check_separator(c, separator) || begin_list(c)) return c->error->code;
  for (int64_t n = 0; (most < 0 || n < most) && (at = find_from(s, separator, begin)) >= 0; n++) {
    if (add(c, part_of(s, begin, at))) return c->error->code;
    begin = at + separator.length;
  }
  return add(c, part_of(s, begin, s.length));
}

/* Put the parts of `s` around `separator`, from the end on, into the result; `back` and `back_separator` are
 * both in reverse order. */
static int32_t split_back(const string_call *c, span s, span back, span back_separator) {
  int64_t most = c->args[2].integer, begin = 0, at;
  if (begin_list(c)) return c->error->code;
  for (int64_t n = 0; (most < 0 || n < most) && (at = find_from(back, back_separator, begin)) >= 0; n++) {
    if (add(c, part_of(s, s.length - at, s.length - begin))) return c->error->code;
    begin = at + back_separator.length;
  }
  if (add(c, part_of(s, 0, s.length - begin))) return c->error->code;
  sequence *made = c->result->sequence;
  for (int64_t i = 0, j = made->length - 1; i < j; i++, j--) {
    value first = made->items[i];
    made->items[i] = made->items[j];
    made->items[j] = first;
  }
  return SVM_OK;
}

static int32_t string_rsplit(const string_call *c) {
  span s = span_of(c->args[0]), separator = span_of(c->args[1]);
  value back, back_separator;
  if (check_separator(c, separator) || reversed(c, s, &back)) return c->error->code;
  int32_t code = reversed(c, separator, &back_separator);
  if (!code) {
    code = split_back(c, s, span_of(back), span_of(back_separator));
    value_drop(c->budget, &back_separator);
  }
  value_drop(c->budget, &back);
  return code;
}

static int32_t string_words(const string_call *c) {
  span s = span_of(c->args[0]);
  if (begin_list(c)) return c->error->code;
  for (int64_t i = 0, begin = 0; i <= s.length; i++) {
    int is_end = i == s.length || kinds_of(s.bytes[i]) & (LINE_END | SPACE);
    if (is_end && begin < i && add(c, part_of(s, begin, i))) return c->error->code;
    if (is_end) begin = i + 1;
  }
  return SVM_OK;
}

/* New strings ---------------------------------------------------------------------------------- */

/* length + n * each, at most INT64_MAX; n >= 0. */
static int64_t grown(int64_t length, int64_t n, int64_t each) {
  int64_t more, made;
  int is_over = __builtin_mul_overflow(n, each, &more) || __builtin_add_overflow(length, more, &made);
  return is_over ? INT64_MAX : made;
}

/* Empty strings are replaced at the beginning, as often as requested. */
static int32_t replace_empty(const string_call *c, span s, span by, int64_t most) {
  if (most < 0) {
    return status_fail(c->error, SVM_ERROR_GUARD,
                       "replace: the string to be replaced is empty; give one of at least one byte");
  }
  char *made = give_room(c, grown(s.length, most, by.length));
  if (!made) return c->error->code;
  for (int64_t i = 0; by.length && i < most; i++) memcpy(made + i * by.length, by.bytes, (size_t)by.length);
  memcpy(made + (by.length ? most * by.length : 0), s.bytes, (size_t)s.length);
  return SVM_OK;
}

static int32_t string_replace(const string_call *c) {
  span s = span_of(c->args[0]), old = span_of(c->args[1]), by = span_of(c->args[2]);
  int64_t most = c->args[3].integer, n = 0, begin = 0, to = 0, at;
  if (!old.length) return replace_empty(c, s, by, most);
  while ((most < 0 || n < most) && (at = find_from(s, old, begin)) >= 0) n++, begin = at + old.length;
  char *made = give_room(c, grown(s.length, n, by.length - old.length));
  if (!made) return c->error->code;
  for (begin = 0; n > 0; n--) {
    at = find_from(s, old, begin);
    memcpy(made + to, s.bytes + begin, (size_t)(at - begin));
    memcpy(made + to + (at - begin), by.bytes, (size_t)by.length);
    to += at - begin + by.length;
    begin = at + old.length;
  }
  memcpy(made + to, s.bytes + begin, (size_t)(s.length - begin));
  return SVM_OK;
}

static int32_t string_join(const string_call *c) {
  span separator = span_of(c->args[0]);
  const sequence *items = c->args[1].sequence;
  int64_t n = 0;
  for (int64_t i = 0; i < items->length; i++) {
    if (items->items[i].tag != SVM_TAG_STR) {
      return status_fail(c->error, SVM_ERROR_KIND, "string join: element %" PRId64 " is %s; it must be a str",
                         i, tag_with_article(items->items[i].tag));
    }
    n = grown(n, 1, items->items[i].text->length + (i ? separator.length : 0));
  }
  char *made = give_room(c, n);
  for (int64_t i = 0; made && i < items->length; i++) {
    span item = span_of(items->items[i]);
    if (i) memcpy(made, separator.bytes, (size_t)separator.length), made += separator.length;
    memcpy(made, item.bytes, (size_t)item.length);
    made += item.length;
  }
  return made ? SVM_OK : c->error->code;
}

static int32_t string_ord(const string_call *c) {
  span s = span_of(c->args[0]);
  if (s.length != 1) {
    return status_fail(c->error, SVM_ERROR_GUARD, "String for ord() must be 1 character, found %" PRId64,
                       s.length);
  }
  return give(c, SVM_TAG_INT, (uint8_t)s.bytes[0]);
}

static int32_t string_chr(const string_call *c) {
  int64_t code = c->args[0].integer;
  if (code < 0 || code >= 0x10FFFF) {
    return status_fail(c->error, SVM_ERROR_GUARD, "chr() arg not in range(0x110000), found %" PRId64, code);
  }
  char byte = (char)code;
  return give_span(c, (span){&byte, 1});
}

/* The table ------------------------------------------------------------------------------------ */

static const struct {
  const char *name;
  const char *takes; /* a digit for each argument: its tag */
  int32_t (*call)(const string_call *c);
} FUNCTIONS[] = {
#define ROW(code, name, takes) [code] = {#name, takes, string_##name},
    SVM_STRING_FUNCTIONS(ROW)
#undef ROW
};

int32_t string_function_n_args(int32_t function) { return (int32_t)strlen(FUNCTIONS[function].takes); }

int32_t string_function_call(memory_budget *budget, int32_t function, const value *args, value *result,
                             svm_error *error) {
  for (int32_t i = 0; FUNCTIONS[function].takes[i]; i++) {
    int32_t wanted = FUNCTIONS[function].takes[i] - '0';
    if (args[i].tag == wanted) continue;
    return status_fail(error, SVM_ERROR_KIND, "string %s: argument %d is %s; it takes %s",
                       FUNCTIONS[function].name, i, tag_with_article(args[i].tag), tag_with_article(wanted));
  }
  return FUNCTIONS[function].call(&(string_call){budget, args, result, error});
}

int64_t string_n_bytes(value v) {
  if (v.tag == SVM_TAG_STR) return v.text->length;
  if (v.tag != SVM_TAG_LIST && v.tag != SVM_TAG_TUPLE) return 0;
  int64_t n = v.sequence->length * (int64_t)(sizeof(value) + sizeof(text));
  for (int64_t i = 0; i < v.sequence->length; i++) {
    value item = v.sequence->items[i];
    n += item.tag == SVM_TAG_STR ? item.text->length : 0;
  }
  return n;
}
