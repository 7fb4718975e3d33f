/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A module without an entry.  With DEPEND it uses that of a library it needs, so that the symbol is
 * in its table, undefined, and dlsym would find it.
 */
#ifdef DEPEND
int escrow_backend_entry_1(void);
#else
#define escrow_backend_entry_1() 42
#endif

__attribute__((visibility("default"))) int depend_answer(void);

int depend_answer(void)
{
	return escrow_backend_entry_1();
}
