/* Text that grows: what reports are written into. */
#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
  int n = vsnprintf(NULL, 0, format, arguments);
  if (n >= 0 && reserve(t, (size_t)n)) {
    vsnprintf(t->bytes + t->size, (size_t)n + 1, format, again);
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
