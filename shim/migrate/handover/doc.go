// Package handover decides which node runs a VM that moves from one node to another.
//
// It owns the records of both nodes, the messages between them, and the recovery
// from the records. It leaves libvirt's migration, and the connections that carry
// the messages, to its callers.
//
// # The rule
//
// Two nodes never run one guest. libvirt alone does not ensure this: if the control
// connection ends after the target received Finish, libvirt's own migration resumes
// the source while the target runs. So each node writes its decision to disk, synced,
// before it acts:
//
//	source   sending ──▶ handed-over ──▶ left     the target has the guest
//	            │             │
//	            └─────────────┴────────▶ kept     the source has the guest
//
//	target   incoming ──▶ taken                   the target has the guest
//	            │
//	            └───────▶ refused                 it never runs the guest
//
// The source stops the guest, writes handed-over, and only then sends the guest's
// hand-over. The target writes taken or refused, once, and only then answers. The
// target's QEMU has the whole guest before taken is written, but is still paused
// (VIR_MIGRATE_PAUSED): so each failure of libvirt or QEMU before that leads to
// refused, and no guest that was resumed is ever refused.
//
// # Failures
//
//   - Before handed-over, the source keeps the guest. The target cannot take a guest
//     whose hand-over was never sent.
//   - After it, the source asks the target until it has an answer. It leaves the guest
//     paused meanwhile: on a lasting split no node runs the guest, rather than two.
//   - A target that is asked before it has the hand-over refuses. So the first question
//     settles the migration, and asking again gets the same answer.
//   - If the target's node is deleted or out of service, an administrator's or the
//     controller's decision takes the place of the answer: see [Source.Decide].
//   - A write that fails counts as not done. A node answers only with what it has
//     written without an error.
//
// A shim that starts calls Recover with each record that has not ended. Neither end
// needs more than its record to recover.
package handover
