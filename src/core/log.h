/* Messages for people: the log (stderr), and the error text of each thread. */
#ifndef HETMPI_LOG_H
#define HETMPI_LOG_H

#include <stddef.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG, LOG_TRACE };

void log_set_level(enum log_level level);
enum log_level log_get_level(void);
void log_set_rank(int world_rank);   /* shown in every line: "hetmpi[3] warn: ..." */
void log_print(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
#define log_at(level, ...) do { if ((level) <= log_get_level()) log_print((level), __VA_ARGS__); } while (0)
#define log_warn(...) log_at(LOG_WARN, __VA_ARGS__)
#define log_info(...) log_at(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_at(LOG_DEBUG, __VA_ARGS__)
#define log_trace(...) log_at(LOG_TRACE, __VA_ARGS__)

/* Stores this thread's error message and returns code, so that detecting and returning are one line:
 *     return err_set(HETMPI_ERR_COUNT, "allreduce: count %zu ...", count);
 * The text says what happened, where, the value, and what to do. Logged at debug level. */
int err_set(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *err_text(void);          /* this thread's last message; "" if none */
void err_copy(int code, const char *text);  /* stores a ready text (an error found by another thread) */
int err_code(void);                  /* its code */
const char *err_name(int code);      /* "HETMPI_ERR_COUNT" */

#endif
