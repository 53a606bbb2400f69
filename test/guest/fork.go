package guest

import (
	"context"
	"path/filepath"
	"slices"
)

// TinyToFork returns the path of a disk as Tiny's for guests that go on from each other's checkpoints: it has
// the guest agent, OpenSSH's server, and Debian's full kernel, since the cloud one does not know the VM
// generation ID. It needs 256 MiB of memory.
func TinyToFork(ctx context.Context, o Options) (path string, err error) {
	sshd, err := loginFiles.ReadFile("login/etc/sshd")
	if err != nil {
		return "", err
	}
	dir, err := tiny(ctx, o, tinyVariant{
		name: "tiny-fork", kernel: fullKernel, modules: agentModules,
		packages: slices.Concat(agentPackages, sshPackages), programs: []string{agentProgram, "sshd", "ssh-keygen"},
		files: []entry{
			fileEntry("etc/passwd", []byte("root:x:0:0:root:/root:/bin/sh\nsshd:x:74:74:sshd:/var/empty:/bin/false\n")),
			fileEntry("etc/sshd", sshd),
		},
	})
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "disk.qcow2"), nil
}
