package domain

import (
	"context"
	"os"
	"regexp"
	"slices"
	"time"

	"libvirt.org/go/libvirt"
)

// Associate passes the files of a defined domain's FD groups to libvirt, for a QEMU that
// another connection starts: that of an incoming migration. libvirt drops them with the
// connection that passed them, which release closes. files stay the caller's.
func (l *Lifecycle) Associate(ctx context.Context, uuid string, files map[string][]*os.File) (release func(), err error) {
	object := "domain " + uuid
	groups, err := duplicate(files)
	if err != nil {
		return nil, &failure{op: "pass files of", object: object, detail: err}
	}
	type result struct {
		conn *libvirt.Connect
		err  error
	}
	done := make(chan result)
	go func() {
		defer groups.close()
		conn, err := associated(l.conn.uri, uuid, groups)
		select {
		case done <- result{conn, err}:
		case <-ctx.Done():
			if conn != nil {
				conn.Close()
			}
		}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			return nil, r.err
		}
		return func() { r.conn.Close() }, nil
	case <-ctx.Done():
		return nil, expired(ctx, "pass files of", object)
	}
}

// associated returns the connection that has passed the files.
func associated(uri, uuid string, groups fdGroups) (*libvirt.Connect, error) {
	failed := &failure{op: "pass files of", object: "domain " + uuid}
	conn, err := libvirt.NewConnect(uri)
	if err != nil {
		failed.kind, failed.detail = ErrUnavailable, plain(err)
		return nil, failed
	}
	dom, err := conn.LookupDomainByUUIDString(uuid)
	if err == nil {
		err = groups.associate(dom)
		dom.Free()
	}
	if err != nil {
		failed.kind, failed.detail = kindOf(err, isAlive(conn)), plain(err)
		conn.Close()
		return nil, failed
	}
	return conn, nil
}

// MigratableXML returns a running domain's XML, as another node's libvirt can read it.
func (o *Observer) MigratableXML(ctx context.Context, uuid string) (string, error) {
	return onDomain(ctx, o.conn, "describe", uuid, func(dom *libvirt.Domain) (string, error) {
		return dom.GetXMLDesc(libvirt.DOMAIN_XML_SECURE | libvirt.DOMAIN_XML_MIGRATABLE)
	})
}

// MigratesLive reports whether QEMU can copy the memory of a running domain while its guest writes to it.
//
// Without KVM, a QEMU before 9.0 forgets some of the writes, and the guest that arrives crashes. A capability that
// came with 9.0 shows which QEMU it is.
func (o *Observer) MigratesLive(ctx context.Context, uuid string) (bool, error) {
	return onDomain(ctx, o.conn, "ask how to migrate", uuid, func(dom *libvirt.Domain) (bool, error) {
		kvm, err := query[struct {
			Enabled bool `json:"enabled"`
		}](dom, "query-kvm", nil)
		if err != nil || kvm.Enabled {
			return kvm.Enabled, err
		}
		all, err := query[[]struct {
			Capability string `json:"capability"`
		}](dom, "query-migrate-capabilities", nil)
		for _, c := range all {
			if c.Capability == mappedRAM {
				return true, nil
			}
		}
		return false, err
	})
}

// mappedRAM is a capability of QEMU's from 9.0 on.
const mappedRAM = "mapped-ram"

// LimitDowntime sets how long QEMU expects to stop a domain's guest for at the end of its migration: it copies
// memory while the guest runs until the rest takes no longer.
func (l *Lifecycle) LimitDowntime(ctx context.Context, uuid string, to time.Duration) error {
	return do(ctx, l.conn, "limit the downtime of", uuid, func(dom *libvirt.Domain) error {
		return dom.MigrateSetMaxDowntime(uint64(to.Milliseconds()), 0)
	})
}

// DropCopies removes the block nodes that an earlier migration's copy of disks has left in a domain's QEMU. A libvirtd
// that is killed while it begins a copy leaves them (libvirt 9.0), and each later migration would fail, as
// it gives its nodes the same names. The domain does not migrate.
func (l *Lifecycle) DropCopies(ctx context.Context, uuid string) error {
	return do(ctx, l.conn, "remove the former copies of", uuid, func(dom *libvirt.Domain) error {
		all, err := query[[]struct {
			Name string `json:"node-name"`
		}](dom, "query-named-block-nodes", map[string]any{"flat": true})
		if err != nil {
			return err
		}
		var left []string
		for _, node := range all {
			if copyNode.MatchString(node.Name) {
				left = append(left, node.Name)
			}
		}
		slices.Sort(left) // "format" comes before the node below it, "storage"
		for _, name := range left {
			if _, err := command(dom, "blockdev-del", map[string]any{"node-name": name}); err != nil {
				return err
			}
		}
		return nil
	})
}

// copyNode matches the names that libvirt gives the nodes of a copy.
var copyNode = regexp.MustCompile(`^migration-[a-z]+-(format|storage)$`)

// Job is the progress of a domain's migration, in bytes, and its rates, in bytes a second. It is of
// memory and disks, as libvirt counts them.
type Job struct {
	Total, Processed, Remaining uint64
	// DiskTotal is the part of Total that are disks.
	DiskTotal uint64
	// Dirty is the rate at which the guest writes memory. Memory and Disk are those of the copies.
	Dirty, Memory, Disk uint64
}

// Job returns the progress of a domain that migrates; nil for one that does not.
func (o *Observer) Job(ctx context.Context, uuid string) (*Job, error) {
	return onDomain(ctx, o.conn, "read the progress of", uuid, func(dom *libvirt.Domain) (*Job, error) {
		s, err := dom.GetJobStats(0)
		if err != nil || s.Type == libvirt.DOMAIN_JOB_NONE {
			return nil, err
		}
		return &Job{
			Total: s.DataTotal, Processed: s.DataProcessed, Remaining: s.DataRemaining,
			DiskTotal: s.DiskTotal,

			Dirty:  s.MemDirtyRate * s.MemPageSize, // pages a second
			Memory: s.MemBps, Disk: s.DiskBps,
		}, nil
	})
}
