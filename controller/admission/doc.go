// Package admission serves the webhooks that decide which objects the cluster
// accepts: it fills in KubeVirt's defaults, applies presets, and reports every
// unsupported field by its path, all at once. Each kind has its own rules in the
// kind's package ([Rules]). RBAC and the policies in deploy/ decide which user may
// write an object, and package certs makes the certificate.
package admission
