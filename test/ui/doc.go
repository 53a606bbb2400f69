// Package ui drives web UIs of KubeVirt, unmodified, in a browser in front of a development cluster.
package ui
