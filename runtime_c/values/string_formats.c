/* Numbers as strings and back, and formats. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memmem */
#endif
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/text.h"
#include "values/string_functions.h"

enum { NUMBER_BYTES = 72 }; /* of a number: 64 binary digits and more, or a float with six places */

/* Numbers as strings --------------------------------------------------------------------------- */

static int write_float(double x, char bytes[NUMBER_BYTES]) {
  int is_whole = x >= -0x1p63 && x < 0x1p63 && (double)(int64_t)x == x;
  if (is_whole) return snprintf(bytes, NUMBER_BYTES, "%" PRId64 ".", (int64_t)x);
  return text_format(bytes, NUMBER_BYTES, "%.17g", x);
}

/* Write none, a bool, int or float; -1 for any other value. */
static int write_plain(value v, char bytes[NUMBER_BYTES]) {
  switch (v.tag) {
    case SVM_TAG_NONE: return snprintf(bytes, NUMBER_BYTES, "None");
    case SVM_TAG_BOOL: return snprintf(bytes, NUMBER_BYTES, v.integer ? "True" : "False");
    case SVM_TAG_INT: return snprintf(bytes, NUMBER_BYTES, "%" PRId64, v.integer);
    case SVM_TAG_FLOAT: return write_float(v.number, bytes);
    default: return -1;
  }
}

int32_t string_of_number(memory_budget *budget, value v, value *result, svm_error *error) {
  char bytes[NUMBER_BYTES];
  int n = write_plain(v, bytes);
  return text_make(budget, bytes, n, result, error);
}

/* An int with digits of `bits` bits, after a prefix. */
static int32_t give_digits(const string_call *c, const char *prefix, int bits) {
  char bytes[NUMBER_BYTES], *at = bytes + sizeof bytes;
  int64_t x = c->args[0].integer;
  uint64_t rest = x < 0 ? 0 - (uint64_t)x : (uint64_t)x;
  do *--at = "0123456789abcdef"[rest & ((1u << bits) - 1)];
  while (rest >>= bits);
  *--at = prefix[1];
  *--at = prefix[0];
  if (x < 0) *--at = '-';
  return text_make(c->budget, at, bytes + sizeof bytes - at, c->result, c->error);
}

int32_t string_hex(const string_call *c) { return give_digits(c, "0x", 4); }
int32_t string_oct(const string_call *c) { return give_digits(c, "0o", 3); }
int32_t string_bin(const string_call *c) { return give_digits(c, "0b", 1); }

/* Strings as numbers --------------------------------------------------------------------------- */

int32_t string_int(const string_call *c) {
  const text *t = c->args[0].text;
  int64_t i = 0, below = 0; /* the number with the sign -, whose range is larger */
  while (t->bytes[i] == ' ' || (t->bytes[i] >= '\t' && t->bytes[i] <= '\r')) i++;
  int is_negative = t->bytes[i] == '-', is_over = 0;
  if (is_negative || t->bytes[i] == '+') i++;
  int64_t first = i;
  for (; t->bytes[i] >= '0' && t->bytes[i] <= '9'; i++) {
    is_over |= __builtin_mul_overflow(below, (int64_t)10, &below) ||
               __builtin_sub_overflow(below, (int64_t)(t->bytes[i] - '0'), &below);
  }
  if (i == first || i != t->length || is_over || (!is_negative && below == INT64_MIN)) {
    return status_fail(c->error, SVM_ERROR_GUARD, "invalid literal for int() with base 10: '%.200s'",
                       t->bytes);
  }
  *c->result = (value){SVM_TAG_INT, {is_negative ? below : -below}};
  return SVM_OK;
}

int32_t string_float(const string_call *c) {
  const text *t = c->args[0].text;
  char *end;
  errno = 0;
  double made = text_number(t->bytes, &end);
  int is_wrong = end == t->bytes || end != t->bytes + t->length || errno == ERANGE;
  if (is_wrong) {
    return status_fail(c->error, SVM_ERROR_GUARD, "could not convert string to float: '%.200s'", t->bytes);
  }
  *c->result = (value){SVM_TAG_FLOAT, {.number = made}};
  return SVM_OK;
}

/* Formats -------------------------------------------------------------------------------------- */

/* What pieces are written into: first `to` is NULL and they are counted. */
typedef struct writer {
  char *to;
  int64_t n;
  svm_error *error;
} writer;

static void put(writer *w, const char *bytes, int64_t n) {
  if (w->to) memcpy(w->to + w->n, bytes, (size_t)n);
  w->n += n;
}

static int32_t put_value(writer *w, value v) {
  char bytes[NUMBER_BYTES];
  if (v.tag == SVM_TAG_STR) {
    put(w, v.text->bytes, v.text->length);
    return SVM_OK;
  }
  int n = write_plain(v, bytes);
  if (n < 0) {
    return status_fail(w->error, SVM_ERROR_KIND, "string format: a value is %s; it must be a str or number",
                       tag_with_article(v.tag));
  }
  put(w, bytes, n);
  return SVM_OK;
}

/* The fields {} of the first argument, filled. */
static int32_t write_format(writer *w, const text *t, const sequence *values) {
  const char *at = t->bytes, *end = at + t->length, *field;
  for (int64_t used = 0; (field = memmem(at, (size_t)(end - at), "{}", 2)); used++) {
    if (used >= values->length) {
      return status_fail(w->error, SVM_ERROR_GUARD, "Too few arguments for format string: %.200s", t->bytes);
    }
    put(w, at, field - at);
    if (put_value(w, values->items[used])) return w->error->code;
    at = field + 2;
  }
  put(w, at, end - at);
  return SVM_OK;
}

/* A float as C's int, as a CPU of x86 converts it. */
static int32_t int_of(double x) { return x > -2147483649.0 && x < 2147483648.0 ? (int32_t)x : INT32_MIN; }

static void put_number(writer *w, char key, value v) {
  char bytes[NUMBER_BYTES];
  int is_int = v.tag == SVM_TAG_INT, n;
  if (key == 'd' || key == 'i') {
    n = snprintf(bytes, sizeof bytes, "%" PRId64, is_int ? v.integer : (int64_t)int_of(v.number));
  } else {
    double x = is_int ? (float)v.integer : (float)v.number;
    n = text_format(bytes, sizeof bytes, key == 'E' ? "%.6E" : key == 'e' ? "%.6e" : "%.6f", x);
  }
  put(w, bytes, n);
}

static int32_t put_character(writer *w, value v) {
  if (v.tag != SVM_TAG_INT && (v.tag != SVM_TAG_STR || v.text->length != 1)) {
    return status_fail(w->error, SVM_ERROR_GUARD, "%%c requires an int or char for formatting, but got %s",
                       tag_with_article(v.tag));
  }
  char byte = v.tag == SVM_TAG_STR ? v.text->bytes[0] : (char)v.integer;
  put(w, &byte, 1);
  return SVM_OK;
}

/* A value as the field % with that letter has it. */
static int32_t put_field(writer *w, char key, value v) {
  if (key == 's') return put_value(w, v);
  if (!key || !strchr("difFeEc", key)) {
    return status_fail(w->error, SVM_ERROR_GUARD,
                       "The specifier %%%c is not supported in TorchScript format strings", key);
  }
  if (key == 'c') return put_character(w, v);
  if (v.tag != SVM_TAG_INT && v.tag != SVM_TAG_FLOAT) {
    return status_fail(w->error, SVM_ERROR_GUARD, "%%%c requires a number for formatting, but got %s", key,
                       tag_with_article(v.tag));
  }
  put_number(w, key, v);
  return SVM_OK;
}

/* The fields % of the first argument, filled. */
static int32_t write_percent(writer *w, const text *t, const sequence *values) {
  const char *at = t->bytes, *end = at + t->length, *mark;
  int64_t used = 0;
  for (; (mark = memchr(at, '%', (size_t)(end - at))); at = mark + 2) {
    if (mark + 1 == end) return status_fail(w->error, SVM_ERROR_GUARD, "Incomplete format specifier");
    put(w, at, mark - at);
    if (mark[1] == '%') {
      put(w, "%", 1);
      continue;
    }
    if (used >= values->length)
      return status_fail(w->error, SVM_ERROR_GUARD, "Too few arguments for format string");
    if (put_field(w, mark[1], values->items[used++])) return w->error->code;
  }
  if (used != values->length)
    return status_fail(w->error, SVM_ERROR_GUARD, "Too many arguments for format string");
  put(w, at, end - at);
  return SVM_OK;
}

static int32_t give_written(const string_call *c,
                            int32_t (*write)(writer *w, const text *t, const sequence *values)) {
  writer w = {NULL, 0, c->error};
  if (write(&w, c->args[0].text, c->args[1].sequence)) return c->error->code;
  if (text_new(c->budget, w.n, c->result, c->error)) return c->error->code;
  w = (writer){c->result->text->bytes, 0, c->error};
  return write(&w, c->args[0].text, c->args[1].sequence);
}

int32_t string_format(const string_call *c) { return give_written(c, write_format); }
int32_t string_percent(const string_call *c) { return give_written(c, write_percent); }
