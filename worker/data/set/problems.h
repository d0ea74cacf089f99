/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/set/problems.h - problems of a data set, reported together: all
 * are counted, the first few are kept in words. */
#pragma once
#include <stdint.h>

struct err;

enum { PROBLEMS_KEPT = 50, NOTES_KEPT = 20, PROBLEM_TEXT = 640 /* as msg of struct err */ };

struct problems {
    int64_t count; /* bad records: the network cannot use them */
    int kept;
    char text[PROBLEMS_KEPT][PROBLEM_TEXT];
    int64_t notes; /* doubtful records and ignored keys: not a reason to refuse anything */
    int notes_kept;
    char note[NOTES_KEPT][PROBLEM_TEXT];
};

/* Each names file and id. Must not be called by two threads at once. */
void problems_add(struct problems *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Something that the user should know and that leaves the record usable: a doubtful record, with file and line or id,
 * or an ignored key. */
void problems_note(struct problems *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A note on an unknown key, at its first place. place: "FILE, line 7"; what: "key" or another noun; known: keys that
 * may be meant, ending with NULL. */
void problems_note_key(struct problems *p, const char *place, const char *what, const char *key, const char *const *known);
/* Drops bad records and notes, because a single cause, reported as an error, explains them all. */
void problems_forget(struct problems *p);
/* ERR_DATA with as many of them as fit: "train.json: 3 problems: annotation 7: ...; ...". */
int problems_err(const struct problems *p, const char *source, struct err *err);
/* The same if data.on_bad=skip would help; the message then tells it. */
int problems_refuse(const struct problems *p, const char *source, struct err *err);
