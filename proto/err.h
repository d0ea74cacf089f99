/* SPDX-License-Identifier: Apache-2.0 */ /* proto/err.h - one sentence about what went wrong, and a code. Every
 * function that can fail takes one, last. */
#pragma once
#include <stdbool.h>

/* libuv's and errno's codes are small negative numbers and pass through; ours start at -20000. */
#define ERR_MAP(X)                                         \
    X(PROTO, -20000, "malformed message")                  \
    X(STATE, -20001, "not possible in this state")         \
    X(DEVICE, -20002, "accelerator failure")               \
    X(INPUT, -20003, "invalid input")                      \
    X(DATA, -20004, "bad training data")                   \
    X(NOTFOUND, -20005, "not found")                       \
    X(DENIED, -20006, "not allowed")                       \
    X(ABORTED, -20007, "another rank left the job")        \
    X(TIMEOUT, -20008, "deadline passed")                  \
    X(NONFINITE, -20009, "loss or gradient is not finite") \
    X(CORRUPT, -20010, "stored data is damaged")           \
    X(UNSUPPORTED, -20011, "not supported")
#define X(name, code, text) ERR_##name = code,
enum err_code { ERR_MAP(X) };
#undef X

struct err {
    int code;
    char field[96]; /* the job-file key or request member that is at fault; "" if there is none */
    char msg[640];  /* names the job, file or device; no trailing newline or full stop */
};

/* All fill *err (err may be NULL) and return the code, so that `return err_set(err, ...)` reads well. */
int err_set(struct err *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Takes the code from errno (negated) and appends its text: "open 'x': No such file or directory". */
int err_sys(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Like err_set() and also names the field, as "train.lr". */
int err_field(struct err *err, int code, const char *field, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* Puts "what: " in front of the message, for callers that know more: err_prefix(err, "job %d", id). */
void err_prefix(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Whether the operating system (or libuv) refused, so that a retry may succeed. False for our own rules. */
bool err_is_system(const struct err *err);
/* Whether the error is a shortage that passes by itself: room, memory, descriptors, or a program that is being
 * replaced. */
bool err_is_shortage(const struct err *err);
/* Name of one of our codes, as "STATE"; NULL for any other number. */
const char *err_name(int code);

#ifdef __clang_analyzer__ /* it sees one file at a time: say that these return their code, and that the code is negative */
#define err_set(err, code, ...)          (err_set(err, code, __VA_ARGS__), (code))
#define err_field(err, code, field, ...) (err_field(err, code, field, __VA_ARGS__), (code))
#define err_sys(err, ...)                (err_sys(err, __VA_ARGS__), -5)
#endif
