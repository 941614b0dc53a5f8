package limit

// LeaveOut counts what was not worth a word of who, beside what there was no word
// left for.
func (w *Words) LeaveOut(who string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, has := w.left[who]; has || len(w.left) < w.keep {
		w.left[who]++
	}
}
