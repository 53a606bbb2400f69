package compat

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
)

const (
	// maxCookie bounds libvirt's cookie, in bytes: usually some KiB, and a few more for
	// each disk.
	maxCookie = 512 << 10
	// maxDepth bounds how deep its elements are.
	maxDepth = 64
)

// CookieName returns the name of the source's domain in a checked cookie, which libvirt
// compares; empty if it has none. It is only a name in XML.
func CookieName(cookie []byte) string {
	var c struct {
		Name string `xml:"name"`
	}
	_ = xml.Unmarshal(bytes.TrimSuffix(cookie, []byte{0}), &c) // it was checked
	return c.Name
}

// CheckCookie checks a cookie of the source's libvirt before the node's libvirtd, which
// runs as root, reads it: a plain XML document about the VM, without entities, whose
// sizes are bounded. An empty one is valid. libvirt ignores the parts that no flag of the
// migration asks for, among them a definition of the domain.
func CheckCookie(cookie []byte, vm string) error {
	if len(cookie) == 0 {
		return nil
	}
	if len(cookie) > maxCookie {
		return fmt.Errorf("%w: libvirt's cookie has %d bytes, the limit is %d", ErrShape, len(cookie), maxCookie)
	}
	// libvirt's cookies end with a zero, as text of C does.
	text := bytes.TrimSuffix(cookie, []byte{0})
	d := xml.NewDecoder(bytes.NewReader(text))
	var path []string
	var id []byte
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("%w: libvirt's cookie: %w", ErrShape, err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			path = append(path, token.Name.Local)
			if len(path) > maxDepth || path[0] != "qemu-migration" {
				return fmt.Errorf("%w: libvirt's cookie has the element %.80q", ErrShape, token.Name.Local)
			}
		case xml.EndElement:
			path = path[:len(path)-1]
		case xml.CharData:
			if len(path) == 2 && path[1] == "uuid" {
				id = append(id, token...)
			}
		case xml.Directive, xml.ProcInst:
			return fmt.Errorf("%w: libvirt's cookie has a directive", ErrShape)
		}
	}
	if string(id) != vm {
		return fmt.Errorf("%w: libvirt's cookie is of VM %.80q", ErrShape, id)
	}
	return nil
}
