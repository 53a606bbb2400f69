package domain

import (
	"context"
	"os"

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
	conn, err := await(ctx, "pass files of", object, func() (*libvirt.Connect, error) {
		defer groups.close()
		conn, err := libvirt.NewConnect(l.conn.uri)
		if err != nil {
			return nil, &failure{op: "pass files of", object: object, kind: ErrUnavailable, detail: plain(err)}
		}
		err = l.associate(conn, uuid, groups)
		if err == nil && ctx.Err() == nil {
			return conn, nil
		}
		alive := isAlive(conn)
		conn.Close()
		return nil, &failure{op: "pass files of", object: object, kind: kindOf(err, alive), detail: plain(err)}
	})
	if err != nil {
		return nil, err
	}
	return func() { conn.Close() }, nil
}

func (*Lifecycle) associate(conn *libvirt.Connect, uuid string, groups fdGroups) error {
	dom, err := conn.LookupDomainByUUIDString(uuid)
	if err != nil {
		return err
	}
	defer dom.Free()
	return groups.associate(dom)
}

// MigratableXML returns a running domain's XML, as another node's libvirt can read it.
func (o *Observer) MigratableXML(ctx context.Context, uuid string) (string, error) {
	return onDomain(ctx, o.conn, "describe", uuid, func(dom *libvirt.Domain) (string, error) {
		return dom.GetXMLDesc(libvirt.DOMAIN_XML_SECURE | libvirt.DOMAIN_XML_MIGRATABLE)
	})
}
