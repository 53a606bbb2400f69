package podstatus

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
	// errGone: the pod is deleted. Another pod may have its name.
	errGone = errors.New("the pod is gone")
	// errConflict: the pod was changed too often meanwhile.
	errConflict = errors.New("the pod was changed meanwhile")
	// errRefused: the API server rejects the request for good.
	errRefused = errors.New("the API server refuses the conditions")
	// errAway: no pod's status can be written for now.
	errAway = errors.New("the API server cannot be reached")
)

// requestTime bounds one request.
const requestTime = 15 * time.Second

// maxAnswer is more than the largest object in etcd, in bytes.
const maxAnswer = 4 << 20

// client is a client of the API server with a kubeconfig. The kubelet may write the
// kubeconfig after the shim has started, and renews it: client reads it again after
// each failure that it may explain.
type client struct {
	kubeconfig string
	http       *http.Client // nil until the kubeconfig is read
	base       *url.URL
}

// conditions returns the conditions in a pod's status.
func (c *client) conditions(ctx context.Context, pod Pod) ([]Condition, error) {
	body, err := c.do(ctx, http.MethodGet, pod, "", "", nil)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Metadata struct {
			UID string `json:"uid"`
		} `json:"metadata"`
		Status struct {
			Conditions []Condition `json:"conditions"`
		} `json:"status"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("read pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	if answer.Metadata.UID != pod.UID {
		return nil, errGone
	}
	return answer.Status.Conditions, nil
}

// patch writes conditions and leaves other conditions unchanged. The API server
// merges them by type, and refuses them if the pod has another UID.
func (c *client) patch(ctx context.Context, pod Pod, conditions []Condition) error {
	var p struct {
		Metadata struct {
			UID string `json:"uid"`
		} `json:"metadata"`
		Status struct {
			Conditions []Condition `json:"conditions"`
		} `json:"status"`
	}
	p.Metadata.UID, p.Status.Conditions = pod.UID, conditions
	body, err := json.Marshal(p)
	if err != nil {
		return err
	}
	_, err = c.do(ctx, http.MethodPatch, pod, "/status", "fieldManager=nodevirt-shim", body)
	return err
}

func (c *client) do(ctx context.Context, method string, pod Pod, sub, query string, body []byte) ([]byte, error) {
	if err := c.load(); err != nil {
		return nil, fmt.Errorf("%w: %w", errAway, err)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	u := c.base.JoinPath("api", "v1", "namespaces", url.PathEscape(pod.Namespace), "pods", url.PathEscape(pod.Name), sub)
	u.RawQuery = query
	r, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json")
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", "application/strategic-merge-patch+json")
		// The answer is not used, so request a short one.
		r.Header.Set("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
	}
	answer, err := c.http.Do(r)
	if err != nil {
		c.http = nil
		return nil, fmt.Errorf("%w: %w", errAway, err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errAway, err)
	}
	return text, c.judge(answer.StatusCode, text)
}

// judge converts an HTTP status to an error.
func (c *client) judge(code int, body []byte) error {
	var status struct {
		Message string `json:"message"`
		Details struct {
			Causes []struct {
				Field string `json:"field"`
			} `json:"causes"`
		} `json:"details"`
	}
	_ = json.Unmarshal(body, &status) // the answer may come from another server
	said := fmt.Errorf("%d %s: %s", code, http.StatusText(code), clip(status.Message, maxMessage))
	switch {
	case code < http.StatusMultipleChoices:
		return nil
	case code == http.StatusNotFound:
		return errGone
	case len(status.Details.Causes) > 0 && status.Details.Causes[0].Field == "metadata.uid":
		return errGone // the pod of that name is another one
	case code == http.StatusConflict:
		return errConflict
	case code == http.StatusUnauthorized:
		c.http = nil // the credential may have been renewed
		return fmt.Errorf("%w: %w", errAway, said)
	case code == http.StatusForbidden:
		return said
	case code >= http.StatusInternalServerError || code == http.StatusTooManyRequests:
		return fmt.Errorf("%w: %w", errAway, said)
	default:
		return fmt.Errorf("%w: %w", errRefused, said)
	}
}

// load creates the HTTP client from the kubeconfig, unless it exists.
func (c *client) load() error {
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
