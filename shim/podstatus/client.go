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

// What the API server can answer beside success.
var (
	// errGone: there is no such pod any more, but perhaps another one of its name.
	errGone = errors.New("the pod is gone")
	// errConflict: the pod was written too often meanwhile.
	errConflict = errors.New("the pod was changed meanwhile")
	// errRefused: what was sent can't be, and never will be.
	errRefused = errors.New("the API server refuses the conditions")
	// errAway: nothing can be written for now, of no pod.
	errAway = errors.New("the API server can't be reached")
)

// requestTime bounds one request.
const requestTime = 15 * time.Second

// maxAnswer is more than etcd keeps of an object.
const maxAnswer = 4 << 20

// client speaks with the API server by a kubeconfig. The kubelet may write that
// after the shim has started, and renews it: it is read again after each failure
// that could come of it.
type client struct {
	kubeconfig string
	http       *http.Client // nil: read the file first
	base       *url.URL
}

// conditions reads what stands in a pod's status.
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

// patch writes conditions and leaves all others alone. The API merges them by
// their types, and takes them for this pod alone by its uid.
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
		// The answer is not read: a short one will do.
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

// judge tells what a status code means.
func (c *client) judge(code int, body []byte) error {
	var status struct {
		Message string `json:"message"`
		Details struct {
			Causes []struct {
				Field string `json:"field"`
			} `json:"causes"`
		} `json:"details"`
	}
	_ = json.Unmarshal(body, &status) // who answers may be no API server
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

// load makes an HTTP client of the kubeconfig, where there is none.
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
