package domain

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"

	"libvirt.org/go/libvirt"
)

// saveHeader is the beginning of libvirt's files of saved domains (virQEMUSaveHeader), before
// the domain's XML. Numbers are in the node's byte order.
type saveHeader struct {
	Magic      [16]byte
	Version    uint32
	DataLength uint32 // of the XML, with a zero at its end
	WasRunning uint32
	Compressed uint32
	Cookie     uint32 // its offset in the data; 0 for none
	Unused     [14]uint32
}

// saveMagic marks a complete file.
const saveMagic = "LibvirtQemudSave"

// saveHead returns what libvirt reads before QEMU reads the memory.
func saveHead(text string) ([]byte, error) {
	h := saveHeader{Version: 2, DataLength: uint32(len(text) + 1), WasRunning: 1}
	copy(h.Magic[:], saveMagic)
	var b bytes.Buffer
	if err := binary.Write(&b, binary.NativeEndian, h); err != nil {
		return nil, err
	}
	b.WriteString(text)
	b.WriteByte(0)
	return b.Bytes(), nil
}

// Restore starts a defined domain paused with the memory that [Lifecycle.SaveMemory] wrote, and
// returns QEMU's process id. The domain has its own definition, but the board, the CPU and the
// devices with their addresses must be those of the saved one. pipe is the path at which Restore
// makes a named pipe for libvirtd, which it removes. For files and errors see [Lifecycle.Start].
// Restore does not read memory any more when it has returned.
func (l *Lifecycle) Restore(ctx context.Context, uuid string, files map[string][]*os.File, memory io.Reader, pipe string) (int, error) {
	object := "domain " + uuid
	if ctx.Err() != nil {
		return 0, expired(ctx, "restore", object)
	}
	feed, err := newFeed(pipe)
	if err != nil {
		return 0, &failure{op: "restore", object: object, detail: err}
	}
	defer func() { _ = feed.close() }() // also when the pipe was not used
	groups, err := duplicate(files)
	if err != nil {
		return 0, &failure{op: "restore", object: object, detail: err}
	}
	end := l.pending.begin(uuid)
	pid, err := await(patient(ctx), "restore", object, func() (int, error) {
		defer end()
		defer groups.close()
		name, err := call(context.WithoutCancel(ctx), l.conn, "restore", object, func(c *libvirt.Connect) (string, error) {
			return groups.restore(c, uuid, func(head []byte) string { return feed.begin(head, memory) })
		})
		if err != nil {
			return 0, err
		}
		return l.processes.pid(name)
	})
	if broken := feed.close(); broken != nil && err != nil {
		// libvirt only says that the stream ended.
		return 0, &failure{op: "restore", object: object, detail: broken, open: errors.Is(err, ErrUnanswered)}
	}
	return pid, err
}

// restore restores a domain and returns its name. begin serves its state at the path that it returns.
func (g fdGroups) restore(c *libvirt.Connect, uuid string, begin func(head []byte) (path string)) (string, error) {
	dom, err := c.LookupDomainByUUIDString(uuid)
	if err != nil {
		return "", err
	}
	defer dom.Free()
	if err := g.associate(dom); err != nil {
		return "", err
	}
	text, err := dom.GetXMLDesc(libvirt.DOMAIN_XML_SECURE | libvirt.DOMAIN_XML_MIGRATABLE | libvirt.DOMAIN_XML_INACTIVE)
	if err != nil {
		return "", err
	}
	head, err := saveHead(text)
	if err != nil {
		return "", err
	}
	if err := c.DomainRestoreFlags(begin(head), "", libvirt.DOMAIN_SAVE_PAUSED); err != nil {
		return "", err
	}
	return dom.GetName()
}
