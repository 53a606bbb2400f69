package node

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// scrapeTimeout bounds a scrape, on a machine that may be busy.
const scrapeTimeout = time.Minute

// Scrape reads the shim's metrics, in Prometheus' text format.
func (n *Node) Scrape(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, scrapeTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://shim/metrics", nil)
	if err != nil {
		return "", err
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", n.MetricsSocket())
	}
	reply, err := (&http.Transport{DialContext: dial, DisableKeepAlives: true}).RoundTrip(r)
	if err != nil {
		return "", fmt.Errorf("scrape the shim: %w", err)
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err == nil && reply.StatusCode != http.StatusOK {
		err = fmt.Errorf("scrape the shim: %s: %s", reply.Status, text)
	}
	return string(text), err
}

// Sample scrapes the shim for the value of one series, such as go_goroutines, written with its
// labels as in the text format.
func (n *Node) Sample(ctx context.Context, series string) (float64, error) {
	text, err := n.Scrape(ctx)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, fmt.Errorf("the shim has no series %s", series)
}
