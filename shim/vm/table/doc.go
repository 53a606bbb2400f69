// Package table keeps the VM containers of one node, and the sandboxes of their
// pods, in memory as their records on disk say.
//
// It owns container names, user ids, the turn in which calls on one VM follow
// each other, and the order of writing: a record reaches the disk before memory.
// What a record means, and when it changes, is package lifecycle's business.
//
// # Lock order
//
// A goroutine takes locks only in this order, and may leave out any of them:
//
//  1. a VM's turn ([VM.Lock]); never that of a second VM;
//  2. the table's mutex, which no method holds while it waits for anything but
//     the functions passed to [Table.IfLatest] and [Table.ForgetSandbox], which
//     must not call the table;
//  3. the mutex of another part (podstatus, event, agent, a VM's values).
//
// The mutex of lifecycle's unfinished creations is never held together with
// another lock.
package table
