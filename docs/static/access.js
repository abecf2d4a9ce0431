'use strict';
// What screen readers and keyboards need, and Furo's pages lack.
document.addEventListener('DOMContentLoaded', () => {
  document.querySelectorAll('.caption[role="heading"]').forEach((caption) => {
    caption.setAttribute('aria-level', 2);
  });
  document.querySelectorAll('.table-wrapper').forEach((box) => {
    box.tabIndex = 0;
  });
});
