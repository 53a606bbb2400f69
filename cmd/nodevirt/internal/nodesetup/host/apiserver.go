package host

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// requestTime bounds one request.
	requestTime = 15 * time.Second
	// maxAnswer is more than the largest object in etcd, in bytes.
	maxAnswer = 4 << 20
	// nodeUser is the prefix of kubelets' user names.
	nodeUser = "system:node:"
)

// Status is the state of the Node object.
type Status struct {
	Ready bool
	// Message explains a node that is not ready.
	Message string
	// Heartbeat is when the kubelet last reported, in whole seconds.
	Heartbeat time.Time
	// Handlers are the runtime handlers that the kubelet reports.
	Handlers []string
	Labels   map[string]string
}

// object is the part of a Node that Status shows.
type object struct {
	Metadata struct {
		Labels map[string]string `json:"labels"`
	} `json:"metadata"`
	Status struct {
		Conditions []struct {
			Type              string    `json:"type"`
			Status            string    `json:"status"`
			Message           string    `json:"message"`
			LastHeartbeatTime time.Time `json:"lastHeartbeatTime"`
		} `json:"conditions"`
		RuntimeHandlers []struct {
			Name string `json:"name"`
		} `json:"runtimeHandlers"`
	} `json:"status"`
}

// Status returns the state of the Node object of the kubelet whose kubeconfig is given.
func (h Host) Status(ctx context.Context, kubeconfig string) (Status, error) {
	c, err := connect(ctx, kubeconfig)
	if err != nil {
		return Status{}, err
	}
	var o object
	if err := c.do(ctx, http.MethodGet, c.node, "", nil, &o); err != nil {
		return Status{}, err
	}
	return o.state(), nil
}

func (o object) state() Status {
	st := Status{Message: "the kubelet has not reported yet", Labels: o.Metadata.Labels}
	for _, c := range o.Status.Conditions {
		if c.Type == "Ready" {
			st.Ready, st.Message, st.Heartbeat = c.Status == "True", c.Message, c.LastHeartbeatTime
		}
	}
	for _, r := range o.Status.RuntimeHandlers {
		st.Handlers = append(st.Handlers, r.Name)
	}
	return st
}

// SetLabel sets a label of the Node object, or removes it if value is nil. A kubelet may change its
// node's labels.
func (h Host) SetLabel(ctx context.Context, kubeconfig, name string, value *string) error {
	c, err := connect(ctx, kubeconfig)
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]*string{name: value}}})
	if err != nil {
		return err
	}
	return c.do(ctx, http.MethodPatch, c.node, "application/merge-patch+json", patch, nil)
}

// client is a client of the API server.
type client struct {
	http *http.Client
	base *url.URL
	// node is the path of the kubelet's Node object.
	node string
}

// connect returns a client with a kubelet's kubeconfig. The API server knows the node's name from
// the kubelet's certificate.
func connect(ctx context.Context, kubeconfig string) (*client, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read the kubelet's kubeconfig: %w", err)
	}
	c := &client{}
	if c.http, err = rest.HTTPClientFor(config); err != nil {
		return nil, fmt.Errorf("use %s: %w", kubeconfig, err)
	}
	if c.base, _, err = rest.DefaultServerUrlFor(config); err != nil {
		return nil, fmt.Errorf("use %s: %w", kubeconfig, err)
	}
	const review = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	var answer struct {
		Status struct {
			UserInfo struct {
				Username string `json:"username"`
			} `json:"userInfo"`
		} `json:"status"`
	}
	body := []byte(`{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`)
	if err := c.do(ctx, http.MethodPost, review, "application/json", body, &answer); err != nil {
		return nil, err
	}
	user := answer.Status.UserInfo.Username
	name, ok := strings.CutPrefix(user, nodeUser)
	if !ok || name == "" {
		return nil, fmt.Errorf("%s belongs to %q; want a kubelet's", kubeconfig, user)
	}
	c.node = "/api/v1/nodes/" + url.PathEscape(name)
	return c, nil
}

func (c *client) do(ctx context.Context, method, path, media string, body []byte, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	u := c.base.JoinPath(path)
	r, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Accept", "application/json")
	if media != "" {
		r.Header.Set("Content-Type", media)
	}
	reply, err := c.http.Do(r)
	if err != nil {
		return fmt.Errorf("call the API server: %w", err)
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(io.LimitReader(reply.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("call the API server: %w", err)
	}
	if reply.StatusCode/100 != 2 {
		var status struct{ Message string }
		_ = json.Unmarshal(text, &status) // without a message the code remains
		return errors.New(strings.TrimSuffix(fmt.Sprintf("%s %s: %s: %s", method, path, reply.Status, status.Message), ": "))
	}
	if answer == nil {
		return nil
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}
