/* Text that grows: what reports are written into. */
#ifndef SVM_TEXT_H
#define SVM_TEXT_H

#include <stddef.h>

typedef struct text_buffer {
  char *bytes; /* zero-terminated; NULL when empty, or after memory ran out */
  size_t size, capacity;
  int is_lost; /* memory ran out: what follows is not written */
} text_buffer;

__attribute__((format(printf, 2, 3))) void text_add(text_buffer *t, const char *format, ...);

/* The string with quotes around it; quotes, backslashes and control characters escaped as in JSON (which
 * OpenMetrics takes as well). */
void text_add_quoted(text_buffer *t, const char *string);

#endif
