// Package lifecycle creates, starts, stops and removes VM containers, notices when
// a guest ends, and finds every VM again after a restart of the shim.
//
// It owns the order in which the parts of a VM are made and undone (image, disks,
// cgroup, network, console, domain), and what each state of a record means:
//
//	creating ──▶ created ──▶ starting ──▶ running ──▶ exited
//	    │                       │                       ▲
//	    ▼ (undone)              └──── start failed ─────┘
//
// What each part does is the part's own business, tables and records are package
// table's, and reports are package report's.
//
// A record is on disk before the shim acts on it. Each undo works from the record
// alone, from every half-made state, and when there is nothing to undo. So the
// same list of phases, backwards, cleans up after a start that failed, a guest
// that ended, and a shim that died in between.
package lifecycle
