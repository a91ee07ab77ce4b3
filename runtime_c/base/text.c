/* See text.h. */
#include "base/text.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* It is static memory of libc: nothing is allocated, and nothing to be freed. */
static locale_t begin_plain(void) { return uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0)); }

int text_format_list(char *bytes, size_t n, const char *format, va_list arguments) {
  locale_t before = begin_plain();
  int made = vsnprintf(bytes, n, format, arguments);
  uselocale(before);
  return made;
}

int text_format(char *bytes, size_t n, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int made = text_format_list(bytes, n, format, arguments);
  va_end(arguments);
  return made;
}

double text_number(const char *text, char **end) {
  locale_t before = begin_plain();
  double made = strtod(text, end);
  uselocale(before);
  return made;
}

static int reserve(text_buffer *t, size_t n) {
  if (t->is_lost) return 0;
  if (t->capacity - t->size > n) return 1;
  size_t wanted = t->capacity * 2 + n + 256;
  char *grown = realloc(t->bytes, wanted);
  if (!grown) {
    free(t->bytes);
    *t = (text_buffer){.is_lost = 1};
    return 0;
  }
  t->bytes = grown;
  t->capacity = wanted;
  return 1;
}

void text_add(text_buffer *t, const char *format, ...) {
  va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  int n = text_format_list(NULL, 0, format, arguments);
  if (n >= 0 && reserve(t, (size_t)n)) {
    text_format_list(t->bytes + t->size, (size_t)n + 1, format, again);
    t->size += (size_t)n;
  }
  va_end(again);
  va_end(arguments);
}

void text_add_quoted(text_buffer *t, const char *string) {
  text_add(t, "\"");
  for (const char *c = string; *c; c++) {
    if (*c == '"' || *c == '\\') text_add(t, "\\%c", *c);
    else if (*c == '\n') text_add(t, "\\n");
    else if ((unsigned char)*c < 0x20) text_add(t, " ");
    else text_add(t, "%c", *c);
  }
  text_add(t, "\"");
}
