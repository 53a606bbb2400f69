package domain

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
	"libvirt.org/go/libvirt"
)

// Start starts a defined domain paused and returns QEMU's process id, so that the
// caller can move the process into its cgroup and connect its tap before guest
// code runs. [Lifecycle.Resume] lets the guest run.
//
// files are the descriptors of each FD group in the domain's XML. They stay the
// caller's, who can close them when Start returns: QEMU has its own by then.
// libvirt drops them when the domain ends. So each start needs them, but a guest's
// reboot does not.
//
// If the domain runs already, the error is [ErrRunning]. After [ErrUnavailable] or
// [ErrUnanswered] the domain may run, or start later: undo that with [Lifecycle.Destroy].
func (l *Lifecycle) Start(ctx context.Context, uuid string, files map[string][]*os.File) (int, error) {
	object := "domain " + uuid
	if ctx.Err() != nil {
		return 0, expired(ctx, "start", object)
	}
	groups, err := duplicate(files)
	if err != nil {
		return 0, &failure{op: "start", object: object, detail: err}
	}
	end := l.pending.begin(uuid)
	return await(ctx, "start", object, func() (int, error) {
		defer end()
		defer groups.close()
		name, err := onDomain(context.WithoutCancel(ctx), l.conn, "start", uuid, groups.start)
		if err != nil {
			return 0, err
		}
		return l.processes.pid(name)
	})
}

// fdGroups has duplicates of the descriptors, by group. A call that outlives its
// context must not use the caller's numbers: the caller may have closed them, and
// they may be other files by then.
type fdGroups map[string][]*os.File

func duplicate(files map[string][]*os.File) (fdGroups, error) {
	groups := fdGroups{}
	for name, list := range files {
		for _, f := range list {
			fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
			if err != nil {
				groups.close()
				return nil, fmt.Errorf("duplicate descriptor of %s: %w", f.Name(), err)
			}
			groups[name] = append(groups[name], os.NewFile(uintptr(fd), f.Name()))
		}
	}
	return groups, nil
}

// start starts dom with the files and returns its name.
func (g fdGroups) start(dom *libvirt.Domain) (string, error) {
	if err := g.associate(dom); err != nil {
		return "", err
	}
	if err := dom.CreateWithFlags(libvirt.DOMAIN_START_PAUSED); err != nil {
		return "", err
	}
	return dom.GetName()
}

func (g fdGroups) associate(dom *libvirt.Domain) error {
	for name, list := range g {
		files := make([]os.File, len(list)) // the binding wants values
		for i, f := range list {
			files[i] = *f
		}
		if err := dom.FDAssociate(name, files, 0); err != nil {
			return fmt.Errorf("pass the files of group %s to libvirt: %w", name, err)
		}
	}
	return nil
}

func (g fdGroups) close() {
	for _, list := range g {
		for _, f := range list {
			f.Close()
		}
	}
}
