/* Requests for exact code: when entries are queued, who waits for them. */
#pragma once

#include "run/call_site.h"
#include "run/context.h"

/* Count `n` executions of the entry, once per `now`, under the strategy; queue it when it is worth exact
 * code. Called with the lock. Returns after how many more to count again, NOTHING_LEFT: never. */
static const int64_t NOTHING_LEFT = INT64_MAX;
int64_t entry_count(svm_program *p, entry *e, int32_t strategy, int64_t now, int64_t n);

/* Make sure that the entry has the code that the strategy wants before it runs: waits for the compiler if
 * need be, until the watch stops the call. Called without the lock. */
int32_t entry_wait(svm_program *p, entry *e, int wants_exact, watch *w, svm_error *error);

/* Queue all entries that are hot by now, under the program's strategy. Called with the lock held. */
void queue_ask(svm_program *p);

/* Let a compiler that waits for requests look up. Called with the lock held. */
void queue_nudge(svm_program *p);

/* Keep compilers in svm_request_wait, or let them go on. Returns whether one is there, or none is needed:
 * there is none, or it is this thread. Called with the lock held. */
int32_t queue_pause(svm_program *p, int32_t is_paused);

/* Both for one launch of `c` outside of a plan. Called without the lock. */
int32_t entry_prepare(const call *c, entry *e);

/* Drop all waiting requests. Called with the lock held. */
void queue_clear(svm_program *p);

/* Requeue the jobs of a compiler that is gone. Called with the lock held, or on the only thread. */
void queue_restore(svm_program *p);
