/* Numbers as text, whatever the host's locale is; text that grows: what reports are written into. */
#pragma once

#include <stdarg.h>
#include <stddef.h>

/* As snprintf, vsnprintf and strtod in the locale "C". */
__attribute__((format(printf, 3, 4))) int text_format(char *bytes, size_t n, const char *format, ...);
int text_format_list(char *bytes, size_t n, const char *format, va_list arguments);
double text_number(const char *text, char **end);

typedef struct text_buffer {
  char *bytes; /* zero-terminated; NULL when empty, or after memory ran out */
  size_t size, capacity;
  int is_lost; /* memory ran out: what follows is not written */
} text_buffer;

__attribute__((format(printf, 2, 3))) void text_add(text_buffer *t, const char *format, ...);

/* The string with quotes around it; quotes, backslashes and control characters escaped as in JSON (which
 * OpenMetrics takes as well). */
void text_add_quoted(text_buffer *t, const char *string);
