// Package kubelet sends requests to the API server with the credential of the node's
// kubelet, which may change the node's own objects only. It owns the credential and
// what answers mean; it leaves requests, and when to repeat them, to its callers.
package kubelet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// The errors of requests to the API server.
var (
	// ErrGone: the object is deleted. Another object may have its name.
	ErrGone = errors.New("the object is gone")
	// ErrConflict: the object was changed too often meanwhile.
	ErrConflict = errors.New("the object was changed meanwhile")
	// ErrRefused: the API server rejects the request for good.
	ErrRefused = errors.New("the API server refuses the request")
	// ErrAway: no request can be made for now.
	ErrAway = errors.New("the API server cannot be reached")
)

const (
	// requestTime bounds one request.
	requestTime = 15 * time.Second
	// maxAnswer is more than the largest object in etcd, in bytes.
	maxAnswer = 4 << 20
	// maxList bounds a list, in bytes.
	maxList = 256 << 20
	// maxMessage bounds what an error repeats of an answer.
	maxMessage = 1024
)

// Client is a client of the API server with a kubeconfig. The kubelet may write the
// kubeconfig after the shim has started, and renews it: Client reads it again after
// each failure that it may explain. One goroutine at a time may use a Client.
type Client struct {
	kubeconfig string
	node       string       // empty until the API server has said it
	http       *http.Client // nil until the kubeconfig is read
	base       *url.URL
}

// New returns a client with a kubeconfig, which need not exist yet.
func New(kubeconfig string) *Client { return &Client{kubeconfig: kubeconfig} }

// Request is a request to the API server.
type Request struct {
	Method string
	// Path has the parts of the path, each of which becomes one part.
	Path []string
	// Query is an encoded query, which may be empty.
	Query string
	// Type is the type of Body.
	Type string
	// Metadata requests only the metadata of the object, or of the list's objects with List, in the answer.
	Metadata, List bool
	Body           []byte
	// Decode, if not nil, reads the body of an answer without an error in place of Do, which then returns none. So a
	// list may be longer than an object.
	Decode func(io.Reader) error
}

// Do sends a request and returns the body of the answer. It fails with one of the
// errors above, or with another one if the credential does not permit the request.
func (c *Client) Do(ctx context.Context, request Request) ([]byte, error) {
	if err := c.load(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAway, err)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	parts := make([]string, 0, len(request.Path))
	for _, p := range request.Path {
		parts = append(parts, url.PathEscape(p))
	}
	u := c.base.JoinPath(parts...)
	u.RawQuery = request.Query
	r, err := http.NewRequestWithContext(ctx, request.Method, u.String(), bytes.NewReader(request.Body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json")
	if request.Metadata {
		kind := "PartialObjectMetadata"
		if request.List {
			kind += "List"
		}
		r.Header.Set("Accept", "application/json;as="+kind+";g=meta.k8s.io;v=v1")
	}
	if request.Type != "" {
		r.Header.Set("Content-Type", request.Type)
	}
	answer, err := c.http.Do(r)
	if err != nil {
		c.http = nil
		return nil, fmt.Errorf("%w: %w", ErrAway, err)
	}
	defer answer.Body.Close()
	if request.Decode != nil && answer.StatusCode == http.StatusOK {
		if err := request.Decode(io.LimitReader(answer.Body, maxList)); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrAway, err)
		}
		return nil, nil
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAway, err)
	}
	return text, c.judge(answer.StatusCode, text)
}

// judge converts an HTTP status to an error.
func (c *Client) judge(code int, body []byte) error {
	var status struct {
		Message string `json:"message"`
		Details struct {
			Causes []struct {
				Field string `json:"field"`
			} `json:"causes"`
		} `json:"details"`
	}
	_ = json.Unmarshal(body, &status) // the answer may come from another server
	said := fmt.Errorf("%d %s: %.*s", code, http.StatusText(code), maxMessage, status.Message)
	switch {
	case code < http.StatusMultipleChoices:
		return nil
	case code == http.StatusNotFound:
		return ErrGone
	case len(status.Details.Causes) > 0 && status.Details.Causes[0].Field == "metadata.uid":
		return ErrGone // the object of that name is another one
	case code == http.StatusConflict:
		return ErrConflict
	case code == http.StatusUnauthorized:
		c.http = nil // the credential may have been renewed
		return fmt.Errorf("%w: %w", ErrAway, said)
	case code == http.StatusForbidden:
		return said
	case code >= http.StatusInternalServerError || code == http.StatusTooManyRequests:
		return fmt.Errorf("%w: %w", ErrAway, said)
	default:
		return fmt.Errorf("%w: %w", ErrRefused, said)
	}
}

// load creates the HTTP client from the kubeconfig, unless it exists.
func (c *Client) load() error {
	if c.http != nil {
		return nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	if err != nil {
		return fmt.Errorf("kubernetes.kubeconfig: %w", err)
	}
	config.UserAgent = "nodevirt-shim"
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return fmt.Errorf("kubernetes.kubeconfig %s: %w", c.kubeconfig, err)
	}
	h, err := rest.HTTPClientFor(config)
	if err != nil {
		return fmt.Errorf("kubernetes.kubeconfig %s: %w", c.kubeconfig, err)
	}
	c.http, c.base = h, base
	return nil
}
