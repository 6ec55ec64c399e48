package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/store"
	"github.com/worqr/worqr/internal/words"
)

const (
	atOnce     = 16    // nodes queried concurrently
	fewNodes   = 5     // nodes named in a finding
	totalSlots = 16384 // in a cluster
)

// inCluster reports whether there may be several servers.
func (c *checkup) inCluster() bool { return c.Nodes != nil }

func (c *checkup) settings() []string {
	all := []string{"appendfsync", "save", "min-replicas-to-write", "min-replicas-max-lag", "stop-writes-on-bgsave-error", "repl-diskless-sync", "repl-diskless-sync-delay"}
	if c.inCluster() {
		all = append(all, "cluster-require-full-coverage")
	}
	return all
}

// servers checks the state and settings that servers report.
func (c *checkup) servers() error {
	c.nodes = []store.Node{{Runner: c.Runner}}
	if c.inCluster() {
		nodes, err := c.Nodes(c.ctx)
		if err != nil {
			return fmt.Errorf("list the nodes of the cluster: %w", err)
		}
		c.nodes = nodes
	} else if err := store.Alone(c.ctx, c.Runner, c.Space); err != nil {
		return err
	}
	views := make([]*view, len(c.nodes))
	room := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for i, n := range c.nodes {
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			views[i] = c.look(n)
		})
	}
	all.Wait()
	for _, v := range views {
		switch {
		case v.err == nil:
		case !c.inCluster():
			return v.err
		case c.ctx.Err() != nil || !store.IsAway(v.err):
			return fmt.Errorf("node %s: %w", v.node.Name, v.err)
		default:
			c.gone(v.node, v.err)
		}
	}
	views = slices.DeleteFunc(views, func(v *view) bool { return v.err != nil })
	if !c.inCluster() {
		for _, f := range views[0].judge(c.Lease) {
			c.found(f)
		}
		return nil
	}
	for _, f := range judgeCluster(views) {
		c.found(f)
	}
	return nil
}

func (c *checkup) lookAround(v *view) error {
	if !c.inCluster() {
		return nil
	}
	err := v.told.TellCluster(c.ctx, v.node)
	if store.IsAnswer(err) {
		v.found.tell(notPermitted, inspect.SeverityNotice, fmt.Sprintf("CLUSTER couldn't be read (%s), so the state of the cluster was only partly checked.", words.Shown(err.Error())))
		return nil
	}
	return err
}

// gone records that a node doesn't answer.
func (c *checkup) gone(n store.Node, err error) {
	if c.lost[n.Name] {
		return
	}
	c.lost[n.Name] = true
	f := inspect.Finding{Kind: cluster, Severity: inspect.SeverityLost, Subject: n.Name,
		Text: fmt.Sprintf("Node %s doesn't answer (%s). Neither its queues nor the registrations of workers were checked. Start it, or promote a replica.", n.Name, words.Shown(err.Error()))}
	if n.Replica {
		f.Severity, f.Text = inspect.SeverityRisk, fmt.Sprintf("Node %s, a replica, doesn't answer (%s). Start it, or remove it from the cluster.", n.Name, words.Shown(err.Error()))
	}
	c.found(f)
}

// isWhole reports whether all nodes that have keys have answered.
func (c *checkup) isWhole() bool {
	return !slices.ContainsFunc(c.nodes, func(n store.Node) bool { return !n.Replica && c.lost[n.Name] })
}

// passOver reports that something couldn't be checked because a node can't be used. It returns
// other errors.
func (c *checkup) passOver(e *exam, err error) error {
	if err == nil || !c.inCluster() || c.ctx.Err() != nil || !store.IsAway(err) {
		return err
	}
	f := inspect.Finding{Kind: cluster, Severity: inspect.SeverityLost, Text: fmt.Sprintf("Not everything could be checked (%s). Check again once the cluster is healthy.", words.Shown(err.Error()))}
	if e != nil {
		e.lost = true
		f.Queue = e.id
		f.Text = fmt.Sprintf("The queue %q couldn't be checked (%s). Neither could the other queues on its node, nor the registrations of workers. Check again once the cluster is healthy.", words.Clip(e.name), words.Shown(err.Error()))
		if store.IsMoving(err) {
			f.Text = fmt.Sprintf("The queue %q can't be used: its slot is being moved to another node, and isn't there yet. Finish the move, or run redis-cli --cluster fix.", words.Clip(e.name))
		} else {
			c.lost[e.node] = true
		}
	}
	c.found(f)
	return nil
}

// judgeCluster returns findings about the nodes of a cluster.
func judgeCluster(views []*view) []inspect.Finding {
	var all findings
	type remark struct {
		kind        inspect.FindingKind
		severity    inspect.Severity
		title, text string
	}
	by := map[remark][]string{} // by finding: the nodes
	for _, v := range views {
		of := findings(v.judge(0))
		of.cluster(v)
		for _, f := range of {
			r := remark{f.Kind, f.Severity, f.Title, f.Text}
			by[r] = append(by[r], v.node.Name)
		}
	}
	for r, nodes := range by {
		f := inspect.Finding{Kind: r.kind, Severity: r.severity, Title: r.title, Text: those(nodes) + ": " + r.text}
		if len(nodes) == 1 {
			f.Subject = nodes[0]
		}
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b inspect.Finding) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Text, b.Text))
	})
	return all
}

func those(nodes []string) string {
	switch more := len(nodes) - fewNodes; {
	case len(nodes) == 1:
		return "Node " + nodes[0]
	case more > 0:
		return fmt.Sprintf("Nodes %s and %d more", strings.Join(nodes[:fewNodes], ", "), more)
	}
	return "Nodes " + strings.Join(nodes, ", ")
}

// cluster reports problems in a node's view of its cluster.
func (all *findings) cluster(v *view) {
	told := v.told
	if s := told["cluster_state"]; s != "" && s != "ok" {
		all.tell(cluster, inspect.SeverityLost, fmt.Sprintf("cluster_state is %s: the cluster refuses calls. Start the nodes that are down, or promote their replicas; redis-cli --cluster check shows details.", words.Shown(s)))
	}
	if n := number(told["cluster_slots_assigned"]); n > 0 && n < totalSlots {
		all.tell(cluster, inspect.SeverityLost, fmt.Sprintf("%s to no node, so queues there can't be used. Run redis-cli --cluster fix.", slots(totalSlots-n, "belongs", "belong")))
	}
	if n := number(told["cluster_slots_fail"]); n > 0 {
		all.tell(cluster, inspect.SeverityLost, fmt.Sprintf("%s to a node that has failed. Start it, or promote a replica.", slots(n, "belongs", "belong")))
	}
	if v.settings["cluster-require-full-coverage"] == "yes" {
		all.tell(coverage, inspect.SeverityNotice, "cluster-require-full-coverage is yes: one node that is down stops the queues of all nodes. Set it to no.")
	}
}

func slots(n int, one, more string) string {
	if n == 1 {
		more = one
	}
	return words.Counted(n, "slot") + " " + more
}
