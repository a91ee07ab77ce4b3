/* Error records and the names of their codes. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

#define NAME_ROW(code, constant, name) [code] = name,
static const char *const ERROR_NAMES[] = {[SVM_OK] = "ok", SVM_ERRORS(NAME_ROW)};

const char *svm_error_name(int32_t code) {
  int32_t n = (int32_t)(sizeof ERROR_NAMES / sizeof *ERROR_NAMES);
  return code >= 0 && code < n && ERROR_NAMES[code] ? ERROR_NAMES[code] : "unknown";
}

void status_clear(svm_error *error) {
  error->code = SVM_OK;
  error->function = -1;
  error->pc = -1;
  error->source = "";
  error->message[0] = 0;
}

/* Cut an overlong message at a whole UTF-8 character. */
static void end_at_character(char *message, size_t size) {
  size_t n = size - 1;
  while (n && ((unsigned char)message[n] & 0xC0) == 0x80) n--;
  message[n] = 0;
}

int32_t status_need(const void *pointer, const char *what, svm_error *error) {
  return pointer ? SVM_OK : status_fail(error, SVM_ERROR_ARGUMENT, "%s is NULL", what);
}

int32_t status_fail(svm_error *error, int32_t code, const char *format, ...) {
  svm_error unasked;
  error = error ? error : &unasked;
  status_clear(error);
  error->code = code;
  va_list arguments;
  va_start(arguments, format);
  int n = text_format_list(error->message, sizeof error->message, format, arguments);
  va_end(arguments);
  if (code == SVM_ERROR_MEMORY && n > 0 && !strchr(error->message, ';') && n < SVM_MESSAGE_BYTES - 64)
    strcat(error->message, "; free some or use smaller inputs");
  if (n >= (int)sizeof error->message) end_at_character(error->message, sizeof error->message - 1);
  return code;
}
