package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
	kubevirt "kubevirt.io/api/core/v1"
)

// list is the cost of a full list.
type list struct {
	took  time.Duration
	bytes int64 // without compression
}

// The query of a list that may come from the API server's cache, as informers ask for, and of one
// that is as new as etcd's.
const (
	cached = "?resourceVersion=0"
	newest = ""
)

// listInstances lists all VMIs.
func (r *rig) listInstances(ctx context.Context, query string) (l list, err error) {
	config := r.server.Config()
	config.DisableCompression = true
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		return l, fmt.Errorf("list VMIs: %w", err)
	}
	url := config.Host + "/apis/" + kubevirt.StorageGroupVersion.String() + "/" + vmis + query
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return l, fmt.Errorf("list VMIs: %w", err)
	}
	begun := time.Now()
	response, err := c.Do(request)
	if err != nil {
		return l, fmt.Errorf("list VMIs: %w", err)
	}
	defer response.Body.Close()
	if l.bytes, err = io.Copy(io.Discard, response.Body); err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	if l.took = time.Since(begun); err != nil {
		return l, fmt.Errorf("list VMIs: %w", err)
	}
	return l, nil
}
