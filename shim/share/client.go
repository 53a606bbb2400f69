package share

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"

	"github.com/nodevirt/nodevirt/shim/disk"
)

// Client sends requests to the shim at a socket.
type Client struct {
	http   http.Client
	socket string
}

// NewClient returns a Client, which connects with its first call.
func NewClient(socket string) *Client {
	c := &Client{socket: socket}
	c.http.Transport = &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}
	return c
}

// Export creates an export, and returns what an initiator needs to use it.
func (c *Client) Export(ctx context.Context, r disk.ExportRequest) (disk.Connection, error) {
	var conn disk.Connection
	err := c.call(ctx, http.MethodPost, "/v1/exports", r, &conn)
	return conn, err
}

// Unexport removes an export.
func (c *Client) Unexport(ctx context.Context, name string, force bool) error {
	return c.call(ctx, http.MethodDelete, fmt.Sprintf("/v1/exports/%s?force=%t", url.PathEscape(name), force), nil, nil)
}

// Import lets a namespace's pods use a disk.
func (c *Client) Import(ctx context.Context, i disk.Import) error {
	return c.call(ctx, http.MethodPut, "/v1/imports/"+url.PathEscape(i.Name), i, nil)
}

// Forget removes an import.
func (c *Client) Forget(ctx context.Context, name string) error {
	return c.call(ctx, http.MethodDelete, "/v1/imports/"+url.PathEscape(name), nil, nil)
}

// List returns the node's exports and imports.
func (c *Client) List(ctx context.Context) (List, error) {
	var l List
	err := c.call(ctx, http.MethodGet, "/v1/disks", nil, &l)
	return l, err
}

// maxAnswer bounds a response, in bytes.
const maxAnswer = 16 << 20

func (c *Client) call(ctx context.Context, method, path string, body, into any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://shim"+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	reply, err := c.http.Do(r)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err
		}
		return fmt.Errorf("no answer from the shim at %s (%w): start nodevirt-shim, or name its socket with --disks-socket", c.socket, err)
	}
	defer reply.Body.Close()
	answer := io.LimitReader(reply.Body, maxAnswer)
	if reply.StatusCode != http.StatusOK {
		var f failure
		if err := json.NewDecoder(answer).Decode(&f); err != nil || f.Error == "" {
			return fmt.Errorf("the shim at %s answers %s", c.socket, reply.Status)
		}
		return errors.New(f.Error)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(answer).Decode(into)
}
