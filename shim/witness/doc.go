// Package witness decides whether a VM runs, from what the node knows of it, and finds the processes that
// answer the question.
//
// It owns the rule below, the search for VMs' processes in /proc, their end, and who has a disk
// open. It leaves libvirt, records and what is released to its callers. It changes nothing but by
// [Node.End].
//
// # The rule
//
// A VM has ended when its processes have. Three witnesses know of a VM: the processes of the node, libvirt,
// and the shim's record. Libvirt forgets a domain whose status file is lost, and a record can be lost,
// damaged or of another root folder, while QEMU writes to the disks. Only the processes cannot be wrong. So
// [Judge] returns one of three verdicts:
//
//	             libvirt: runs     shut off, unknown    no answer
//	QEMU runs    Runs              Disputed             Runs
//	no QEMU      Disputed          Over                 Disputed
//	not known    Disputed          Disputed             Disputed
//
// and Disputed instead of Runs without a record that can be used. The verdict decides what may be done:
//
//   - Runs: nothing of the VM is released, and the VM can be used.
//   - Over: the VM's end is recorded, and its disks, devices, user ID, files and network are released.
//   - Disputed: nothing is deleted, started or handed out. Clients see the guest with the reason and the
//     commands that end it. An order to end the VM ends its QEMU: the order is about the guest, not about
//     what libvirt knows.
//
// # Why no two QEMUs write to one disk
//
//   - libvirt changes the user before it executes QEMU, and QEMU has no capability to change it again. So a
//     QEMU has its VM's user ID from its first instruction to its last. The shim hands a user ID out only if
//     no VM of its table and no process of the node has it. So a process of the user that executes an
//     emulator is that VM's QEMU, and there is none if none is found. A command line could be forged by the
//     guest that has taken over its QEMU, and decides nothing about whether a VM runs.
//   - A pod's author chooses the user ID of its processes and the names of its programs, but not their PID
//     namespace and cgroup. libvirtd starts QEMU in the shim's PID namespace, and the shim places it in the VM's
//     cgroup. So a process in another PID namespace, or in the scope of another container runtime, is a
//     stranger's ([Process.Stranger]), and no VM's. Its user ID counts as in use, and the files that it has open
//     as open, because the kernel says so. A pod with hostPID and without a scope, which is an
//     administrator's, differs by its container's ID.
//   - Only the shim starts a VM's QEMU, in the VM's turn. It releases in the VM's turn too, and only after
//     Over. So QEMU does not appear between the verdict and the release.
//   - A start reserves a block device by its major and minor number, which all its nodes share, and
//     looks for processes of VMs, and QEMUs of any user, that have the device open ([Scan.Holders]). The
//     reservation decides between starts of one shim. It ends only with the release. The search decides where
//     the reservation is lost: after a restart of the shim whose record of the other VM is lost too. That
//     QEMU is older than the shim, so one scan, at the beginning of a call, serves all disks of the call.
//   - A file is searched for in the same way, by its file system and its inode, whichever mount it was opened
//     through. Between starts of one shim, QEMU's own lock decides; not each file system has such locks.
//   - A network disk is reserved by what identifies it, and QEMU's command line says which ones a QEMU has
//     ([Scan.Remotes]). The command line of a QEMU whose reservations are known is not read: a guest that has
//     taken over its QEMU can write there, and would keep other VMs from their disks. A running VM cannot get
//     another network disk, so the command line is complete. Strangers' command lines are not read.
//   - A process ID may be another process's by the time it is used. So [Node.End] holds the process by a
//     pidfd and looks at it again before it sends a signal.
//   - Without an answer from /proc the verdict is Disputed.
//
// # Why everything can be removed
//
// The kernel ends each process that gets SIGKILL, unless it waits for a device that does not answer. Then
// Node.End returns an error, and its callers repeat it. When the process is gone, the verdict is Over as soon
// as libvirt answers. A guest without a record has only what the shim's start would remove; the shim removes
// that when the guest's process is gone.
//
// world_test.go simulates nodes on which libvirt forgets domains, records are lost, shims die between any two
// steps, process IDs are used again and ends are slow. It checks the two properties above, and that it finds a
// violation if any one step of the rule is left out.
package witness
