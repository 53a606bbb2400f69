package cluster

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/nodevirt/nodevirt/test/node"
)

// healthy is a component's Ready that asks for a page, from the node, and wants the status 200.
// Certificates are not looked at: who else should listen there?
func healthy(url string) func(context.Context, *node.Node) error {
	return func(ctx context.Context, n *node.Node) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		web := http.Client{
			Timeout: 10 * time.Second,
			Transport: &http.Transport{
				DialContext: n.Dial, DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
			},
		}
		reply, err := web.Do(r)
		if err != nil {
			return err
		}
		defer reply.Body.Close()
		if reply.StatusCode == http.StatusOK {
			return nil
		}
		text, _ := io.ReadAll(io.LimitReader(reply.Body, 4096))
		return fmt.Errorf("%s: %s: %s", url, reply.Status, text)
	}
}
