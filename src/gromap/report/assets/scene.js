"use strict";
// Two canvases, one pose: what turns, moves or enlarges one shape does so to both.

const FIELD = 28; // degrees, of the cameras
const SLOPE = Math.tan((FIELD / 2) * (Math.PI / 180));
const MARGIN = 1.08; // around the shapes
const CLICK = 5; // pixels that a click may move
const HALF = 0.5; // of the weight of a point: where less is matched, it shows no texture
const START_PITCH = 0.12;
const SAMPLE = 4000; // points of a shape that tell how large it is
const seen = new THREE.Vector3();
THREE.ColorManagement.enabled = false; // colors are bytes of the screen, shaded as they are

function rotation(pitch, yaw, roll) {
  const about = (x, y, z, angle) => new THREE.Quaternion().setFromAxisAngle(new THREE.Vector3(x, y, z), angle);
  return about(1, 0, 0, pitch).multiply(about(0, 1, 0, yaw)).multiply(about(0, 0, 1, roll));
}

class Pose {
  constructor(yaw) {
    this.start = yaw;
    this.watchers = [];
    this.held = [];
    this.fits = new Map(); // distances by the shape of a canvas
    this.reset();
  }

  reset() {
    Object.assign(this, { yaw: this.start, pitch: START_PITCH, roll: 0, zoom: 1, x: 0, y: 0 });
    this.changed();
  }

  turn(dx, dy) {
    this.yaw += dx;
    this.pitch = Math.max(-Math.PI / 2, Math.min(Math.PI / 2, this.pitch + dy));
    this.changed();
  }

  move(dx, dy) {
    this.x = Math.max(-1.5, Math.min(1.5, this.x - dx / this.zoom));
    this.y = Math.max(-1.5, Math.min(1.5, this.y + dy / this.zoom));
    this.changed();
  }

  enlarge(factor) {
    this.zoom = Math.max(0.4, Math.min(60, this.zoom * factor));
    this.changed();
  }

  rollOver() {
    this.roll += Math.PI / 2;
    this.changed();
  }

  // Some points of a shape, in the frame of the page: both shapes shall fill their frames, and fit into them.
  hold(points, matrix) {
    const step = 3 * Math.ceil(points.length / 3 / SAMPLE);
    for (let i = 0; i < points.length; i += step) this.held.push(new THREE.Vector3().fromArray(points, i).applyMatrix4(matrix));
    this.fits.clear();
  }

  // How far a camera has to be, for the pose at the start, and for the same from the front and from the other side.
  distance(aspect) {
    const lying = Math.round(this.roll / (Math.PI / 2)) % 2;
    const key = `${aspect} ${lying}`;
    if (!this.fits.has(key)) {
      let far = 0.1;
      for (const yaw of [-this.start, 0, this.start]) {
        const turn = rotation(START_PITCH, yaw, (lying * Math.PI) / 2);
        for (const point of this.held) {
          const { x, y, z } = seen.copy(point).applyQuaternion(turn);
          far = Math.max(far, z + (MARGIN * Math.max(Math.abs(y), Math.abs(x) / aspect)) / SLOPE);
        }
      }
      this.fits.set(key, far);
    }
    return this.fits.get(key);
  }

  changed() {
    this.watchers.forEach((watch) => watch());
  }

  rotation() {
    return rotation(this.pitch, this.yaw, this.roll);
  }
}

class View {
  // side: caption, center, radius and frame, from page.py; points, faces and, in a match of parts, what is kept of each
  // point, as flat arrays
  constructor(canvas, side, pose, points, faces, kept) {
    Object.assign(this, { canvas, side, points, faces, kept, pose, queued: false, wired: false, drawn: () => {} });
    this.renderer = new THREE.WebGLRenderer({ canvas, antialias: true, alpha: true });
    this.renderer.outputColorSpace = THREE.LinearSRGBColorSpace;
    this.renderer.setClearAlpha(0);
    this.camera = new THREE.PerspectiveCamera(FIELD, 1, 0.01, 100);
    this.scene = new THREE.Scene();
    const light = new THREE.DirectionalLight(0xffffff, 0.55 * Math.PI);
    light.position.set(-0.45, 0.55, 0.7);
    this.scene.add(new THREE.AmbientLight(0xffffff, 0.5 * Math.PI), light);
    this.turned = new THREE.Group(); // by the pose
    this.shape = new THREE.Group(); // from the coordinates of the file to the frame of the page
    this.turned.add(this.shape);
    this.scene.add(this.turned);
    this.stand();
    this.geometry = new THREE.BufferGeometry();
    this.geometry.setAttribute("position", new THREE.BufferAttribute(points, 3));
    this.geometry.setAttribute("color", new THREE.BufferAttribute(new Uint8Array(points.length).fill(200), 3, true));
    this.body = faces.length ? this.surface() : this.cloud();
    this.shape.add(this.body);
    this.markers = this.marker();
    pose.watchers.push(() => this.redraw());
    new ResizeObserver(() => this.resize()).observe(canvas);
    this.resize();
  }

  stand() {
    const [right, up, towards] = this.side.frame;
    const scale = 1 / this.side.radius;
    const turn = new THREE.Matrix4().set(...right, 0, ...up, 0, ...towards, 0, 0, 0, 0, 1);
    const [x, y, z] = this.side.center;
    const place = new THREE.Matrix4().makeTranslation(-x, -y, -z);
    this.shape.matrixAutoUpdate = false;
    this.shape.matrix.makeScale(scale, scale, scale).multiply(turn).multiply(place);
    this.pose.hold(this.points, this.shape.matrix);
  }

  surface() {
    this.geometry.setIndex(new THREE.BufferAttribute(new Uint32Array(this.faces), 1));
    this.geometry.computeVertexNormals();
    return new THREE.Mesh(this.geometry, new THREE.MeshLambertMaterial({ vertexColors: true, side: THREE.DoubleSide }));
  }

  // Points as little balls, of the size that just about covers a surface.
  cloud() {
    this.size = Math.max(0.005, Math.min(0.05, 0.9 / Math.sqrt(this.points.length / 3)));
    const material = new THREE.PointsMaterial({ vertexColors: true, size: this.size / SLOPE });
    material.onBeforeCompile = (shader) => {
      const balls = `#include <color_fragment>
        vec2 off = 2.0 * gl_PointCoord - 1.0;
        if (dot(off, off) > 1.0) discard;
        diffuseColor.rgb *= 0.45 + 0.55 * sqrt(1.0 - dot(off, off));`;
      shader.fragmentShader = shader.fragmentShader.replace("#include <color_fragment>", balls);
    };
    return new THREE.Points(this.geometry, material);
  }

  // A ball that is seen through the shape, faintly where it is behind.
  marker() {
    const ball = new THREE.SphereGeometry(1, 24, 16);
    const group = new THREE.Group();
    const add = (color, size, opacity, depthTest, order) => {
      const look = { color: color, opacity, transparent: true, depthTest, depthWrite: false };
      const mesh = new THREE.Mesh(ball, new THREE.MeshBasicMaterial(look));
      mesh.scale.setScalar(size);
      mesh.renderOrder = order;
      group.add(mesh);
    };
    add(0x111111, 1.35, 0.25, false, 1);
    add(0x00e5ff, 1, 0.35, false, 2);
    add(0x111111, 1.35, 1, true, 3);
    add(0x00e5ff, 1, 1, true, 4);
    group.visible = false;
    this.turned.add(group);
    return group;
  }

  mark(index) {
    this.markers.visible = index !== null;
    if (index !== null) {
      this.markers.position.fromArray(this.points, 3 * index).applyMatrix4(this.shape.matrix);
    }
    this.redraw();
  }

  // Colors of the vertices; uv and texture where a surface has them and they are to be shown instead.
  paint(colors, uv, texture) {
    if (this.clothed) this.clothed.visible = Boolean(uv);
    if (uv && !this.clothed) this.clothe(uv, texture);
    this.body.visible = !uv;
    this.geometry.attributes.color.array.set(colors);
    this.geometry.attributes.color.needsUpdate = true;
    this.redraw();
  }

  clothe(uv, { pixels, height, width }) {
    const rgba = new Uint8Array(4 * height * width).fill(255);
    for (let row = 0; row < height; row++) {
      for (let column = 0; column < width; column++) {
        const from = 3 * ((height - 1 - row) * width + column); // the first row of a texture is its lowest
        rgba.set(pixels.subarray(from, from + 3), 4 * (row * width + column));
      }
    }
    const map = new THREE.DataTexture(rgba, width, height);
    Object.assign(map, { wrapS: THREE.RepeatWrapping, wrapT: THREE.RepeatWrapping, generateMipmaps: true, needsUpdate: true });
    Object.assign(map, { magFilter: THREE.LinearFilter, minFilter: THREE.LinearMipmapLinearFilter, anisotropy: 4 });
    const corners = this.geometry.clone();
    corners.deleteAttribute("color");
    const cut = corners.toNonIndexed();
    cut.setAttribute("uv", new THREE.BufferAttribute(uv, 2));
    this.clothed = new THREE.Group();
    this.clothed.add(new THREE.Mesh(cut, new THREE.MeshLambertMaterial({ map, side: THREE.DoubleSide })));
    if (this.kept) this.clothed.add(this.leaveOut(cut));
    this.shape.add(this.clothed);
    this.wire(this.wired);
  }

  // Takes the faces that are not matched at all corners out of a textured surface, and gives them in their colors.
  leaveOut(cut) {
    const worn = [];
    const bare = [];
    for (let f = 0; f < this.faces.length; f += 3) {
      const corners = [f, f + 1, f + 2];
      if (corners.every((c) => this.kept[this.faces[c]] >= HALF)) worn.push(...corners);
      else bare.push(...corners.map((c) => this.faces[c]));
    }
    cut.setIndex(worn);
    const rest = new THREE.BufferGeometry();
    for (const name of ["position", "normal", "color"]) rest.setAttribute(name, this.geometry.attributes[name]);
    rest.setIndex(bare);
    return new THREE.Mesh(rest, this.body.material);
  }

  // Where a vertex is seen, in pixels of the canvas.
  place(index) {
    const { width, height } = this.canvas.getBoundingClientRect();
    const at = new THREE.Vector3().fromArray(this.points, 3 * index).applyMatrix4(this.shape.matrix);
    const { x, y } = at.applyQuaternion(this.turned.quaternion).project(this.camera);
    return [((x + 1) * width) / 2, ((1 - y) * height) / 2];
  }

  // Edges alone, or surfaces.
  wire(on) {
    this.shape.traverse(({ material }) => material && "wireframe" in material && (material.wireframe = on));
    this.wired = on;
    this.redraw();
  }

  // The vertex at a place of the canvas, in pixels, or null.
  pick(x, y) {
    const { width, height } = this.canvas.getBoundingClientRect();
    const caster = new THREE.Raycaster();
    caster.setFromCamera(new THREE.Vector2((2 * x) / width - 1, 1 - (2 * y) / height), this.camera);
    caster.params.Points.threshold = 0.6 * this.size * this.side.radius;
    const hit = caster.intersectObject(this.body)[0];
    if (!hit) return null;
    if (!hit.face) return hit.index;
    const local = this.body.worldToLocal(hit.point.clone());
    const distance = (j) => distance2(this.points, j, [local.x, local.y, local.z]);
    return [hit.face.a, hit.face.b, hit.face.c].sort((i, j) => distance(i) - distance(j))[0];
  }

  resize() {
    const { width, height } = this.canvas.getBoundingClientRect();
    if (!width || !height) return;
    this.renderer.setPixelRatio(Math.min(window.devicePixelRatio, 2));
    this.renderer.setSize(width, height, false);
    this.camera.aspect = width / height;
    this.redraw();
  }

  redraw() {
    if (this.queued) return;
    this.queued = true;
    requestAnimationFrame(() => this.draw());
  }

  draw() {
    this.queued = false;
    const away = this.pose.distance(this.camera.aspect) / this.pose.zoom;
    this.turned.quaternion.copy(this.pose.rotation());
    this.camera.position.set(this.pose.x, this.pose.y, away);
    this.camera.near = Math.max(0.01, away - 1.2);
    this.camera.far = away + 1.2;
    this.camera.updateProjectionMatrix();
    this.markers.scale.setScalar(0.006 * away);
    this.renderer.render(this.scene, this.camera);
    this.drawn();
  }
}

// Dragging turns, with the right button, Shift or two fingers it moves; wheel and pinch enlarge; a click picks.
function handle(view, pose, clicked, restored) {
  const canvas = view.canvas;
  const held = new Map();
  let traveled = 0;
  const middle = () => {
    const all = [...held.values()];
    const [x, y] = [0, 1].map((c) => all.reduce((sum, at) => sum + at[c], 0) / all.length);
    return { x, y, apart: all.length > 1 ? Math.hypot(all[0][0] - all[1][0], all[0][1] - all[1][1]) : 0 };
  };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    if (held.size === 0) traveled = 0;
    held.set(event.pointerId, [event.offsetX, event.offsetY]);
    canvas.classList.add("turning");
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!held.has(event.pointerId)) return;
    const before = middle();
    held.set(event.pointerId, [event.offsetX, event.offsetY]);
    const after = middle();
    const [dx, dy] = [after.x - before.x, after.y - before.y];
    traveled += held.size > 1 ? 2 * CLICK : Math.hypot(dx, dy);
    if (traveled < CLICK) return;
    if (held.size > 1 || event.shiftKey || event.buttons & 2) {
      const unit = (2 * pose.distance(canvas.clientWidth / canvas.clientHeight) * SLOPE) / canvas.clientHeight;
      pose.move(dx * unit, dy * unit);
      if (before.apart && after.apart) pose.enlarge(after.apart / before.apart);
    } else {
      pose.turn(dx * 0.008, dy * 0.008);
    }
  });
  const release = (event) => {
    held.delete(event.pointerId);
    if (held.size === 0) canvas.classList.remove("turning");
  };
  const pinch = (event) => event.touches.length > 1 && event.preventDefault(); // one finger may still scroll the page
  canvas.addEventListener("touchstart", pinch, { passive: false });
  canvas.addEventListener("touchmove", pinch, { passive: false });
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("click", (event) => {
    if (traveled < CLICK && event.detail < 2) clicked(view, view.pick(event.offsetX, event.offsetY));
  });
  canvas.addEventListener("contextmenu", (event) => event.preventDefault());
  canvas.addEventListener("dblclick", () => {
    pose.reset();
    restored();
  });
  const wheel = (event) => {
    event.preventDefault();
    pose.enlarge(Math.exp(-event.deltaY * (event.deltaMode === 1 ? 0.04 : 0.0015)));
  };
  canvas.addEventListener("wheel", wheel, { passive: false });
  const keys = {
    ArrowLeft: () => pose.turn(-0.12, 0),
    ArrowRight: () => pose.turn(0.12, 0),
    ArrowUp: () => pose.turn(0, -0.12),
    ArrowDown: () => pose.turn(0, 0.12),
    "+": () => pose.enlarge(1.2),
    "=": () => pose.enlarge(1.2),
    "-": () => pose.enlarge(1 / 1.2),
    0: () => pose.reset(),
    Home: () => pose.reset(),
    r: () => pose.rollOver(),
    Enter: () => clicked(view, view.pick(canvas.clientWidth / 2, canvas.clientHeight / 2)),
  };
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });
}
