/* The tables in INFORMATION_SCHEMA, for the plugin's declaration. */
#ifndef VINGA_INFORMATION_H
#define VINGA_INFORMATION_H
#include "server.h"
extern st_mysql_information_schema vinga_information;
int init_threads(void *p);
int init_memory(void *p);
int init_pools(void *p);
int init_counters(void *p);
int init_nodes(void *p);
int init_transactions_table(void *p);
int init_locks(void *p);
int init_disk_write_speed_base(void *p);
int init_disk_write_speed_aggregate(void *p);
int init_redo_logs(void *p);
int init_restarts(void *p);
#endif
