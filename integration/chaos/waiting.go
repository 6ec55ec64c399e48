package main

import "slices"

// waiting is a list of tasks that is filled at the back and taken from the front.
type waiting struct {
	back  []string // the last is hindmost
	front []string // the last is foremost; these stand before those in back
}

func (w *waiting) push(task string)  { w.back = append(w.back, task) }
func (w *waiting) unpop(task string) { w.front = append(w.front, task) }

func (w *waiting) pop() (task string, ok bool) {
	if len(w.front) == 0 {
		w.front, w.back = w.back, w.front[:0]
		slices.Reverse(w.front)
	}
	if len(w.front) == 0 {
		return "", false
	}
	task = w.front[len(w.front)-1]
	w.front = w.front[:len(w.front)-1]
	return task, true
}

func (w *waiting) remove(task string) (n int) {
	before := len(w.back) + len(w.front)
	equal := func(t string) bool { return t == task }
	w.back, w.front = slices.DeleteFunc(w.back, equal), slices.DeleteFunc(w.front, equal)
	return before - len(w.back) - len(w.front)
}
