package domain

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
	"libvirt.org/go/libvirt"
)

// Start starts a defined domain paused and returns QEMU's process id, so that
// the process can be placed in its cgroup and its tap moved before guest code
// runs; [Driver.Resume] lets it run.
//
// files are the descriptors of each FD group that the domain's XML names. They
// stay the caller's, who can close them when Start returns; QEMU has its own
// then. libvirt forgets them when the domain ends: they are needed again for
// each start, not for a guest's reboot.
//
// A domain that runs already is [ErrRunning]. After an error that is
// [ErrUnavailable] the domain may be running, or may start later: the way back
// is [Driver.Destroy].
func (d *Driver) Start(ctx context.Context, uuid string, files map[string][]*os.File) (int, error) {
	object := "domain " + uuid
	if ctx.Err() != nil {
		return 0, expired(ctx, "start", object)
	}
	groups, err := duplicate(files)
	if err != nil {
		return 0, &failure{op: "start", object: object, detail: err}
	}
	end := d.starts.begin(uuid)
	return await(ctx, "start", object, func() (int, error) {
		defer end()
		defer groups.close()
		name, err := onDomain(context.WithoutCancel(ctx), d, "start", uuid, groups.start)
		if err != nil {
			return 0, err
		}
		return d.pid(name)
	})
}

// fdGroups are descriptors by group. They are duplicates: a call that outlives
// its context must not pass on numbers that its caller has closed meanwhile,
// and that may be anything by now.
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
			return fmt.Errorf("hand over the files of group %s: %w", name, err)
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
