/* daemon/ingest.h - sup.sock: what supervisors report, and what detd tells them. Lines as proto/report.h has them. */
#pragma once

struct daemon;
struct err;
struct ingest;
struct job;

/* Listens at <state>/sup.sock; the process must stand in the state folder, since the path may be longer than a socket's name. */
int ingest_open(struct daemon *d, struct ingest **ret, struct err *err);
void ingest_close(struct ingest *in);
void ingest_free(struct ingest *in);
/* Sends a command. Nothing happens while no supervisor is connected: its welcome will say it. tier NULL: the word has none. */
void ingest_send_word(struct job *j, const char *word, const char *tier);
/* The job is leaving memory: its connection, if any, is closed. */
void ingest_drop(struct job *j);
