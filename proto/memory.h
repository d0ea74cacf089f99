/* proto/memory.h - the end of a program whose memory is at its end where nobody could be told. */
#pragma once

/* Says "PROGRAM: out of memory" and exits with 1. For a few bytes whose lack no caller could mend; a service returns an error instead. */
_Noreturn void memory_out(void);
