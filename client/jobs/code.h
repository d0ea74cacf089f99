/* SPDX-License-Identifier: Apache-2.0 */ /* client/jobs/code.h - which code a program is at submission: so that two
 * jobs can be told apart that ran the same command. */
#pragma once
#include <jansson.h>

/* Sets program.commit, program.changes and program.script of the spec, those that can be found out, and removes the
 * others: the git commit of the folder, a hash of the changes since, a hash of the command's script. Runs git as the
 * user. */
void code_record(json_t *spec);
