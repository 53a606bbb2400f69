package domain

import (
	"context"
	"errors"
	"fmt"
	"io"

	"libvirt.org/go/libvirt"
)

// maxScreenshot is the maximum size of a picture in bytes: 8192 by 8192 pixels as a portable pixmap.
const maxScreenshot = 8192*8192*3 + 64

// Screenshot returns a picture of a running domain's first display. Its first bytes identify the format:
// PNG or, with older QEMUs, a portable pixmap.
func (o *Observer) Screenshot(ctx context.Context, uuid string) ([]byte, error) {
	return call(ctx, o.conn, "take a screenshot of", "domain "+uuid, func(c *libvirt.Connect) ([]byte, error) {
		dom, err := c.LookupDomainByUUIDString(uuid)
		if err != nil {
			return nil, err
		}
		defer dom.Free()
		stream, err := c.NewStream(0)
		if err != nil {
			return nil, explain(dom, err)
		}
		defer func() { _ = stream.Free() }()
		if _, err := dom.Screenshot(stream, 0, 0); err != nil {
			return nil, explain(dom, err)
		}
		data, err := readStream(stream)
		if err != nil {
			return nil, explain(dom, errors.Join(err, stream.Abort()))
		}
		if err := stream.Finish(); err != nil {
			return nil, explain(dom, err)
		}
		return data, nil
	})
}

func readStream(stream *libvirt.Stream) ([]byte, error) {
	var data []byte
	buffer := make([]byte, 256<<10)
	for {
		n, err := stream.Recv(buffer)
		data = append(data, buffer[:n]...)
		switch {
		case errors.Is(err, io.EOF):
			return data, nil
		case err != nil:
			return nil, err
		case len(data) > maxScreenshot:
			return nil, fmt.Errorf("a picture of more than %d bytes", maxScreenshot)
		}
	}
}
